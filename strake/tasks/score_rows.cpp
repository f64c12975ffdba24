#include "strake/tasks/score_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/clock.h"
#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/threads.h"
#include "strake/models/gpus.h"
#include "strake/tensors/compute_threads.h"
#include "strake/tensors/cuda_libtorch.h"

namespace strake::tasks {
namespace {

constexpr int64_t kMostWindowTokens = 384;  // as Transformers' pipeline
constexpr int64_t kMostSharedTokens = 128;
constexpr int64_t kMostTokens = 1'048'576;  // a core's at a time: memory is taken for all of them
constexpr int64_t kTokensOfCore = 1024;
constexpr int64_t kTokensOfGpu = 65536;

// `row_of`: of a row of outputs.
template <typename RowOf>
void require_finite(const at::Tensor& outputs, const data::Table& table, const RowOf& row_of) {
  const auto* values = outputs.const_data_ptr<float>();
  for (int64_t i = 0; i < outputs.numel(); ++i) {
    if (std::isfinite(values[i])) continue;
    fail(ErrorKind::kNumeric,
         "{}: the model's output is {}, not a finite number: are its weights sound? In bf16 or int8, try --precision "
         "fp32",
         table.where(row_of(i / outputs.size(1))), std::isnan(values[i]) ? std::abs(values[i]) : values[i]);
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
  require(max_seq_length.value_or(1) > 0, ErrorKind::kUsage, "--max_seq_length {} must be positive",
          max_seq_length.value_or(0));
  const int64_t tokens = tokens_at_a_time();
  require(tokens > 0 && tokens <= kMostTokens, ErrorKind::kUsage,
          "--max_tokens_per_batch {} must be positive and at most {}", tokens, kMostTokens);
  require(!gpu() || precision.precision != "int8", ErrorKind::kUsage,
          "--precision int8 with --device {}: int8 is computed on processors only; GPUs have bf16", device);
}

std::optional<int> ScoreConfig::gpu() const {
  constexpr std::string_view kNumbered = "cuda:";
  constexpr int kMostGpus = 1024;
  if (device == "cpu") return std::nullopt;
  if (device == "cuda") return 0;
  int number = -1;
  if (device.starts_with(kNumbered)) {
    const char* const end = device.data() + device.size();
    const auto [last, error] = std::from_chars(device.data() + kNumbered.size(), end, number);
    if (error != std::errc() || last != end) number = -1;
  }
  require(number >= 0 && number < kMostGpus, ErrorKind::kUsage,
          "--device {} is neither cpu nor cuda, nor cuda: and a number", printable(device));
  return number;
}

int64_t ScoreConfig::tokens_at_a_time() const {
  return max_tokens_per_batch.value_or(gpu() ? kTokensOfGpu : kTokensOfCore);
}

std::string kernels_of(const ScoreConfig& config) {
  const std::optional<int> gpu = config.gpu();
  if (!gpu) return to_string(best_isa());
  try {
    const int count = models::open_gpus();
    require(*gpu < count, ErrorKind::kConfig, "this machine has {} GPU{}, from 0 on", count, count == 1 ? "" : "s");
    return "CUDA on " + tensors::gpu_name(*gpu);
  } catch (Error& error) {
    error.add_context("--device " + config.device);
    throw;
  }
}

void hint_at_gpus() {
  if (models::may_have_gpus()) log::info("computes on the processor; --device cuda: on this machine's GPU");
}

int tokenizing_threads(const ScoreConfig& config) {
  constexpr int kThreadsPerTokenizer = 16;
  const int threads = threads_per_rank(1);
  return config.gpu() ? threads : 1 + threads / kThreadsPerTokenizer;
}

namespace {

TextOptions columns_of(const ScoreConfig& config, ScoringTask task) {
  TextOptions text = config.text;
  if (task == ScoringTask::kQuestionAnswering) {
    require(text.text_column == TextOptions().text_column && text.text_pair_column.empty(), ErrorKind::kUsage,
            "question-answering reads --question_column and --context_column: leave out --text_column and "
            "--text_pair_column");
    text.text_column = config.task.answers.question_column_or_default();
    text.text_pair_column = config.task.answers.context_column_or_default();
  }
  require(task != ScoringTask::kTokenClassification || text.text_pair_column.empty(), ErrorKind::kUsage,
          "--text_pair_column {}: token-classification looks at single texts", text.text_pair_column);
  text.validate();
  return text;
}

}  // namespace

ScoringPlan plan_scoring(const ScoreConfig& config) {
  ScoringPlan plan{.encoder = models::read_encoder_config(config.model_name_or_path), .task = {}, .text = {}};
  plan.task = choose_task(config.task, plan.encoder, config.model_name_or_path);
  plan.text = columns_of(config, plan.task.task);
  return plan;
}

TextOptions text_options(const ScoreConfig& config, const TaskHead& head, const models::EncoderConfig& encoder,
                         const tokenizers::Tokenizer& tokenizer) {
  TextOptions text = columns_of(config, head.task);
  text.strips_texts = head.strips_texts;
  const int64_t longest = encoder.max_sequence_length();
  const int64_t most = std::min(longest, tokenizer.model_max_length().value_or(longest));
  if (head.task == ScoringTask::kQuestionAnswering) {
    text.max_seq_length = config.max_seq_length.value_or(std::min(kMostWindowTokens, most));
    text.doc_stride = config.task.answers.doc_stride.value_or(std::min(kMostSharedTokens, text.max_seq_length / 2));
    require(*text.doc_stride < text.max_seq_length, ErrorKind::kUsage,
            "--doc_stride {} must be less than --max_seq_length {}", *text.doc_stride, text.max_seq_length);
  } else {
    const int64_t usual = head.max_seq_length.value_or(text.max_seq_length);
    // sentence-transformers prefers its own length to the tokenizer's.
    const bool is_of_folder = head.max_seq_length && usual <= longest;
    text.max_seq_length = config.max_seq_length.value_or(is_of_folder ? usual : std::min(usual, most));
  }
  require(text.max_seq_length <= longest, ErrorKind::kUsage,
          "--max_seq_length {} is more than the model's {} positions", text.max_seq_length, longest);
  text.validate();
  return text;
}

Places ScoringModel::places() const {
  if (task.task == ScoringTask::kQuestionAnswering) return task.answers.places();
  if (task.task != ScoringTask::kTokenClassification) return Places::kNone;
  return joins_words(task.entities.aggregation) ? Places::kWithContinuations : Places::kOfTokens;
}

void check_tokens(const ScoreConfig& config, const models::EncoderConfig& encoder, const EncodedRows& rows,
                  int64_t begin, int64_t end) {
  for (int64_t i = rows.first_sequence(begin); i < rows.first_sequence(end); ++i) {
    if (rows.offsets[i + 1] > rows.offsets[i]) continue;
    fail(ErrorKind::kData, "{}: the text has no tokens", rows.table.where(rows.row_of_sequence(i)));
  }
  const int64_t first = rows.first_token(begin);
  const std::span ids = std::span(rows.ids).subspan(first, static_cast<size_t>(rows.first_token(end) - first));
  const auto largest = std::ranges::max_element(ids);
  require(largest == ids.end() || *largest < encoder.vocab_size, ErrorKind::kConfig,
          "{}: token id {} is not in the model's vocabulary of {}: the tokenizer does not belong to the model",
          config.model_name_or_path, largest == ids.end() ? 0 : *largest, encoder.vocab_size);
}

ScoringModel load_scoring_model(const ScoreConfig& config, const ScoringPlan& plan) {
  const auto start = Clock::now();
  checkpoint::verify_model_files(config.model_name_or_path);
  const double verify_seconds = seconds_since(start);
  ScoringModel model = load_verified_model(config, plan, std::nullopt);
  model.load_seconds += verify_seconds;
  return model;
}

ScoringModel load_verified_model(const ScoreConfig& config, const ScoringPlan& plan,
                                 const std::optional<inference::PrecisionPlan>& precision) {
  const auto start = Clock::now();
  const int threads = threads_per_rank(1);
  tensors::set_compute_threads(threads);
  const TaskHead& task = plan.task;
  const int64_t layers = plan.encoder.num_hidden_layers;
  auto tokenizer = tokenizers::Tokenizer::load(config.model_name_or_path);
  const TextOptions text = text_options(config, task, plan.encoder, *tokenizer);
  require(
      task.task != ScoringTask::kQuestionAnswering || tokenizer->spec().padding_side == tokenizers::Direction::kRight,
      ErrorKind::kConfig,
      "{}: tokenizer_config.json: padding_side is left, for which Transformers' pipeline puts the context before "
      "the question; that is not there",
      config.model_name_or_path);
  const std::optional<int> gpu = config.gpu();
  const std::string kernels = kernels_of(config);
  const PrecisionChoice choice =
      precision
          ? PrecisionChoice{.plan = *precision, .accuracy = {}}
          : choose_precision(config.precision, {.folder = config.model_name_or_path,
                                                .num_layers = layers,
                                                .task = MeasuredTask::of(task),
                                                .with = MeasuredWith::of(*tokenizer, text.max_seq_length, kernels),
                                                .on_gpu = gpu.has_value()});
  ScoringModel model{
      .engine = {config.model_name_or_path,
                 choice.plan,
                 {.threads = threads,
                  .tokens_at_a_time = config.tokens_at_a_time(),
                  .longest_sequence = text.max_seq_length,
                  .gpu = gpu},
                 task.head,
                 config.packed_weights == "off" ? inference::PackedWeights::kOff : inference::PackedWeights::kKept},
      .tokenizer = std::move(tokenizer),
      .plan = choice.plan,
      .task = task,
      .text = text,
      .kernels = kernels,
      .precision = describe(choice.plan, layers),
      .accuracy = choice.accuracy};
  const int64_t added = model.tokenizer->spec().post_processor.added(!text.text_pair_column.empty());
  require(text.max_seq_length >= added, ErrorKind::kUsage,
          "--max_seq_length {} is less than the {} special tokens that the tokenizer adds to every text",
          text.max_seq_length, added);
  model.load_seconds = seconds_since(start);
  const inference::MemoryUse memory = model.engine.memory();
  log::info("{}; {} thread{}; kernels {}; {}; {:.0f} MB of weights, {:.0f} MB for activations", task.text(), threads,
            threads == 1 ? "" : "s", gpu ? kernels : describe_cpu(), model.precision,
            static_cast<double>(memory.weights) / 1e6, static_cast<double>(memory.activations) / 1e6);
  if (!gpu) hint_at_gpus();
  return model;
}

at::Tensor score_encoded(const ScoreConfig& config, ScoringModel& model, const EncodedRows& rows, int64_t begin,
                         int64_t end) {
  check_tokens(config, model.engine.config(), rows, begin, end);
  const int64_t first_sequence = rows.first_sequence(begin);
  const int64_t num_sequences = rows.first_sequence(end) - first_sequence;
  const auto first_offset = rows.offsets.begin() + first_sequence;
  std::vector<int64_t> offsets(first_offset, first_offset + num_sequences + 1);
  const auto ids = std::span(rows.ids).subspan(offsets.front(), static_cast<size_t>(offsets.back() - offsets.front()));
  for (const int64_t first = offsets.front(); int64_t& offset : offsets) offset -= first;
  const inference::PackedTokens tokens{
      .ids = ids,
      .offsets = offsets,
      .second_begin = std::span(rows.second_begin).subspan(first_sequence, static_cast<size_t>(num_sequences))};
  const int64_t width = model.engine.width();
  const at::Tensor outputs = at::empty({model.engine.num_outputs(tokens) / width, width}, at::kFloat);
  try {
    model.engine.score(tokens, {outputs.mutable_data_ptr<float>(), static_cast<size_t>(outputs.numel())});
  } catch (inference::NotFiniteActivations& error) {
    error.add_context(rows.table.where(rows.row_of_sequence(first_sequence + error.sequence())));
    throw;
  }
  require_finite(outputs, rows.table, [&](int64_t i) {
    const bool is_token = model.engine.gives_tokens();
    const int64_t sequence = is_token ? std::ranges::upper_bound(offsets, i) - offsets.begin() - 1 : i;
    return rows.row_of_sequence(first_sequence + sequence);
  });
  return outputs;
}

ScoreReport score_rows(const ScoreConfig& config, ScoringModel& model, const LabelMap* labels, data::TableReader& input,
                       const std::function<void(const EncodedRows&, const at::Tensor& outputs)>& sink) {
  const auto start = Clock::now();
  ScoreReport report{.load_seconds = model.load_seconds, .precision = model.precision, .accuracy = model.accuracy};
  const auto score = [&](const EncodedRows& rows) {
    sink(rows, score_encoded(config, model, rows, 0, rows.num_rows()));
    report.rows += rows.num_rows();
    report.tokens += std::ssize(rows.ids);
    report.rows_cut += std::ssize(rows.cut_rows);
  };
  for_each_encoded(input, {model.tokenizer, model.text, labels, model.places()}, tokenizing_threads(config), score);
  warn_of_cut_rows(report.rows_cut, model.text.max_seq_length);
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace strake::tasks
