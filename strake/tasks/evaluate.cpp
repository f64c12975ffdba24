#include "strake/tasks/evaluate.h"

#include <chrono>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/tensors/compute_threads.h"

namespace strake::tasks {
namespace {

// Predictions and targets of all rows; only these grow with the input.
struct Comparison {
  std::vector<int64_t> predicted_classes, actual_classes;
  std::vector<double> predicted_numbers, actual_numbers;

  void add(const EncodedRows& rows, const at::Tensor& logits, bool regression) {
    const at::Tensor best = regression ? logits.squeeze(1).contiguous() : logits.argmax(1).contiguous();
    for (int64_t i = 0; i < rows.num_rows(); ++i) {
      if (regression) {
        predicted_numbers.push_back(best.const_data_ptr<float>()[i]);
        actual_numbers.push_back(std::get<float>(rows.labels[i]));
      } else {
        predicted_classes.push_back(best.const_data_ptr<int64_t>()[i]);
        actual_classes.push_back(std::get<int32_t>(rows.labels[i]));
      }
    }
  }
};

}  // namespace

void EvaluateConfig::validate() const {
  score.validate();
  require(!score.text.label_column.empty(), ErrorKind::kUsage, "--label_column is empty");
}

EvaluateReport evaluate(const EvaluateConfig& config) {
  config.validate();
  const auto start = std::chrono::steady_clock::now();
  tensors::set_compute_threads(threads_per_rank(1));
  const inference::Scorer scorer(config.score.model_name_or_path,
                                 config.score.bf16 ? inference::Precision::kBf16 : inference::Precision::kFp32);
  const auto tokenizer = tokenizers::Tokenizer::load(config.score.model_name_or_path);
  const double load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const LabelMap labels = LabelMap::of(scorer.config());
  const bool regression = labels.problem() == models::ProblemType::kRegression;
  Comparison comparison;
  EvaluateReport report;
  report.score =
      score_rows(config.score, scorer, tokenizer, &labels,
                 [&](const EncodedRows& rows, const at::Tensor& logits) { comparison.add(rows, logits, regression); });
  report.score.load_seconds = load_seconds;
  require(report.score.rows > 0, ErrorKind::kData, "{} has no rows", config.score.input.front());
  report.metrics =
      regression ? monitor::regression_metrics(comparison.predicted_numbers, comparison.actual_numbers).named_values()
                 : monitor::classification_metrics(comparison.predicted_classes, comparison.actual_classes,
                                                   scorer.config().num_labels())
                       .named_values();
  return report;
}

}  // namespace strake::tasks
