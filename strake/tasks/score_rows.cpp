#include "strake/tasks/score_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "strake/core/clock.h"
#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/threads.h"
#include "strake/tensors/compute_threads.h"

namespace strake::tasks {
namespace {

constexpr int64_t kMostTokens = 1'048'576;  // a core's at a time: memory is taken for all of them

// `row_of`: of a row of outputs.
template <typename RowOf>
void require_finite(const at::Tensor& outputs, const data::Table& table, const RowOf& row_of) {
  const auto* values = outputs.const_data_ptr<float>();
  for (int64_t i = 0; i < outputs.numel(); ++i) {
    require(std::isfinite(values[i]), ErrorKind::kNumeric,
            "{}: the model's output is {}, not a finite number: are its weights sound? In bf16 or int8, try "
            "--precision fp32",
            table.where(row_of(i / outputs.size(1))), values[i]);
  }
}

}  // namespace

void ScoreConfig::validate() const {
  require(!model_name_or_path.empty(), ErrorKind::kUsage, "--model_name_or_path names no folder");
  require(!input.empty(), ErrorKind::kUsage, "--input names no file");
  precision.validate();
  require(packed_weights == "auto" || packed_weights == "off", ErrorKind::kUsage,
          "--packed_weights {} is neither auto nor off", printable(packed_weights));
  task.validate();
  require(text.max_seq_length > 0, ErrorKind::kUsage, "--max_seq_length {} must be positive", text.max_seq_length);
  require(max_tokens_per_batch > 0 && max_tokens_per_batch <= kMostTokens, ErrorKind::kUsage,
          "--max_tokens_per_batch {} must be positive and at most {}", max_tokens_per_batch, kMostTokens);
}

void check_max_seq_length(const ScoreConfig& config, const models::EncoderConfig& encoder) {
  const int64_t longest = encoder.max_sequence_length();
  require(config.text.max_seq_length <= longest, ErrorKind::kUsage,
          "--max_seq_length {} is more than the model's {} positions", config.text.max_seq_length, longest);
}

void check_tokens(const ScoreConfig& config, const models::EncoderConfig& encoder, const EncodedRows& rows,
                  int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    require(rows.offsets[i + 1] > rows.offsets[i], ErrorKind::kData, "{}: the text has no tokens", rows.table.where(i));
  }
  const std::span ids =
      std::span(rows.ids).subspan(rows.offsets[begin], static_cast<size_t>(rows.offsets[end] - rows.offsets[begin]));
  const auto largest = std::ranges::max_element(ids);
  require(largest == ids.end() || *largest < encoder.vocab_size, ErrorKind::kConfig,
          "{}: token id {} is not in the model's vocabulary of {}: the tokenizer does not belong to the model",
          config.model_name_or_path, largest == ids.end() ? 0 : *largest, encoder.vocab_size);
}

ScoringModel load_scoring_model(const ScoreConfig& config) {
  const auto start = Clock::now();
  const int threads = threads_per_rank(1);
  tensors::set_compute_threads(threads);
  const models::EncoderConfig encoder = models::read_encoder_config(config.model_name_or_path);
  check_max_seq_length(config, encoder);
  const int64_t layers = encoder.num_hidden_layers;
  const TaskHead task = choose_task(config.task, encoder, config.model_name_or_path);
  require(task.task == ScoringTask::kTextClassification || config.precision.precision != "auto", ErrorKind::kUsage,
          "--precision auto goes by what strake evaluate --calibrate measured, which is not there for {}: choose fp32, "
          "bf16 or int8",
          to_string(task.task));
  require(task.task != ScoringTask::kTokenClassification || config.text.text_pair_column.empty(), ErrorKind::kUsage,
          "--text_pair_column {}: token-classification looks at single texts", config.text.text_pair_column);
  const inference::PrecisionPlan plan = choose_precision(config.precision, config.model_name_or_path, layers);
  ScoringModel model{
      .engine = {config.model_name_or_path,
                 plan,
                 {.threads = threads,
                  .tokens_at_a_time = config.max_tokens_per_batch,
                  .longest_sequence = config.text.max_seq_length},
                 task.head,
                 config.packed_weights == "off" ? inference::PackedWeights::kOff : inference::PackedWeights::kKept},
      .tokenizer = tokenizers::Tokenizer::load(config.model_name_or_path),
      .plan = plan,
      .task = task,
      .precision = describe(plan, layers)};
  model.load_seconds = seconds_since(start);
  const inference::MemoryUse memory = model.engine.memory();
  log::info("{}; {} thread{}; kernels {}; {}; {:.0f} MB of weights, {:.0f} MB for activations", task.text(), threads,
            threads == 1 ? "" : "s", describe_cpu(), model.precision, static_cast<double>(memory.weights) / 1e6,
            static_cast<double>(memory.activations) / 1e6);
  return model;
}

at::Tensor score_encoded(const ScoreConfig& config, ScoringModel& model, const EncodedRows& rows, int64_t begin,
                         int64_t end) {
  check_tokens(config, model.engine.config(), rows, begin, end);
  std::vector<int64_t> offsets(rows.offsets.begin() + begin, rows.offsets.begin() + end + 1);
  const auto ids = std::span(rows.ids).subspan(offsets.front(), static_cast<size_t>(offsets.back() - offsets.front()));
  for (const int64_t first = offsets.front(); int64_t& offset : offsets) offset -= first;
  const inference::PackedTokens tokens{
      .ids = ids,
      .offsets = offsets,
      .second_begin = std::span(rows.second_begin).subspan(begin, static_cast<size_t>(end - begin))};
  const int64_t width = model.engine.width();
  const at::Tensor outputs = at::empty({model.engine.num_outputs(tokens) / width, width}, at::kFloat);
  model.engine.score(tokens, {outputs.mutable_data_ptr<float>(), static_cast<size_t>(outputs.numel())});
  require_finite(outputs, rows.table, [&](int64_t i) {
    if (!model.engine.gives_tokens()) return begin + i;
    return begin + (std::ranges::upper_bound(offsets, i) - offsets.begin()) - 1;
  });
  return outputs;
}

ScoreReport score_rows(const ScoreConfig& config, ScoringModel& model, const LabelMap* labels,
                       const std::function<void(const EncodedRows&, const at::Tensor& logits)>& sink) {
  const auto start = Clock::now();
  ScoreReport report{.load_seconds = model.load_seconds, .precision = model.precision};
  const data::TableSource source = make_source(config.input, config.text.encoding);
  const auto score = [&](const EncodedRows& rows) {
    sink(rows, score_encoded(config, model, rows, 0, rows.num_rows()));
    report.rows += rows.num_rows();
    report.tokens += std::ssize(rows.ids);
  };
  for_each_encoded(source, {model.tokenizer, config.text, labels}, 1, score);
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace strake::tasks
