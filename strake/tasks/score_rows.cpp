#include "strake/tasks/score_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/data/collate.h"
#include "strake/tensors/compute_threads.h"

namespace strake::tasks {
namespace {

data::TokenDataset dataset_of(const EncodedRows& rows) {
  data::TokenDatasetBuilder builder("");
  builder.reserve(rows.num_rows(), static_cast<int64_t>(rows.ids.size()));
  for (int64_t i = 0; i < rows.num_rows(); ++i) {
    data::TokenRow row = rows.token_row(i);
    row.label = std::monostate();
    builder.append(row);
  }
  return builder.build();
}

at::Tensor score_chunk(const data::TokenDataset& dataset, const inference::Scorer& scorer, int64_t max_tokens) {
  std::vector<int64_t> order(dataset.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](int64_t i) { return dataset.length(i); });
  at::Tensor logits = at::empty({dataset.size(), scorer.config().num_labels()}, at::kFloat);
  const int64_t width = logits.size(1);
  auto* out = logits.mutable_data_ptr<float>();
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    int64_t tokens = 0;
    while (end < order.size() && (end == begin || tokens + dataset.length(order[end]) <= max_tokens)) {
      tokens += dataset.length(order[end++]);
    }
    const auto share = std::span(order).subspan(begin, end - begin);
    const at::Tensor scores = scorer.logits(data::collate(dataset, share)).contiguous();
    for (size_t i = 0; i < share.size(); ++i) {
      std::copy_n(scores.const_data_ptr<float>() + i * width, width, out + share[i] * width);
    }
    begin = end;
  }
  return logits;
}

void require_finite(const at::Tensor& logits, const data::Table& table) {
  const auto* values = logits.const_data_ptr<float>();
  for (int64_t i = 0; i < logits.numel(); ++i) {
    require(std::isfinite(values[i]), ErrorKind::kNumeric,
            "{}: the model's output is {}, not a finite number: are its weights sound? With --bf16, try without",
            table.where(i / logits.size(1)), values[i]);
  }
}

}  // namespace

void ScoreConfig::validate() const {
  require(!model_name_or_path.empty(), ErrorKind::kUsage, "--model_name_or_path names no folder");
  require(!input.empty(), ErrorKind::kUsage, "--input names no file");
  require(text.max_seq_length > 0, ErrorKind::kUsage, "--max_seq_length {} must be positive", text.max_seq_length);
  require(max_tokens_per_batch > 0, ErrorKind::kUsage, "--max_tokens_per_batch {} must be positive",
          max_tokens_per_batch);
}

ScoringModel load_scoring_model(const ScoreConfig& config) {
  const auto start = std::chrono::steady_clock::now();
  tensors::set_compute_threads(threads_per_rank(1));
  ScoringModel model{
      .scorer = {config.model_name_or_path, config.bf16 ? inference::Precision::kBf16 : inference::Precision::kFp32},
      .tokenizer = tokenizers::Tokenizer::load(config.model_name_or_path)};
  model.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return model;
}

ScoreReport score_rows(const ScoreConfig& config, const ScoringModel& model, const LabelMap* labels,
                       const std::function<void(const EncodedRows&, const at::Tensor& logits)>& sink) {
  const auto start = std::chrono::steady_clock::now();
  const inference::Scorer& scorer = model.scorer;
  require(config.text.max_seq_length <= scorer.config().max_sequence_length(), ErrorKind::kUsage,
          "--max_seq_length {} is more than the model's {} positions", config.text.max_seq_length,
          scorer.config().max_sequence_length());
  ScoreReport report{.load_seconds = model.load_seconds};
  const data::TableSource source = make_source(config.input, config.text.encoding);
  const auto score = [&](const EncodedRows& rows) {
    const data::TokenDataset dataset = dataset_of(rows);
    require(dataset.max_token_id() < scorer.config().vocab_size, ErrorKind::kConfig,
            "{}: token id {} is not in the model's vocabulary of {}: the tokenizer does not belong to the model",
            config.model_name_or_path, dataset.max_token_id(), scorer.config().vocab_size);
    const at::Tensor logits = score_chunk(dataset, scorer, config.max_tokens_per_batch);
    require_finite(logits, rows.table);
    sink(rows, logits);
    report.rows += rows.num_rows();
    report.tokens += dataset.total_tokens();
  };
  for_each_encoded(source, model.tokenizer, config.text, labels, 1, score);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace strake::tasks
