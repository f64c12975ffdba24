#include "strake/tasks/evaluate.h"

#include <utility>

#include "strake/core/error.h"
#include "strake/tasks/calibrate.h"

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
  require(!calibrate || (score.precision.precision.empty() && !score.precision.bf16), ErrorKind::kUsage,
          "--calibrate compares all precisions: leave out --precision and --bf16");
}

EvaluateReport evaluate(const EvaluateConfig& config) {
  config.validate();
  if (config.calibrate) {
    Calibration calibration = calibrate(config.score);
    return {.score = std::move(calibration.score), .metrics = std::move(calibration.metrics)};
  }
  ScoreConfig score = config.score;
  score.task.task = to_string(ScoringTask::kTextClassification);
  ScoringModel model = load_scoring_model(score);
  const LabelMap labels = LabelMap::of(model.engine.config());
  const bool regression = labels.problem() == models::ProblemType::kRegression;
  Comparison comparison;
  EvaluateReport report;
  report.score = score_rows(config.score, model, &labels, [&](const EncodedRows& rows, const at::Tensor& logits) {
    comparison.add(rows, logits, regression);
  });
  require(report.score.rows > 0, ErrorKind::kData, "{} has no rows", config.score.input.front());
  report.metrics =
      regression ? monitor::regression_metrics(comparison.predicted_numbers, comparison.actual_numbers).named_values()
                 : monitor::classification_metrics(comparison.predicted_classes, comparison.actual_classes,
                                                   model.engine.config().num_labels())
                       .named_values();
  return report;
}

}  // namespace strake::tasks
