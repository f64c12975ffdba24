#include "strake/tasks/evaluate.h"

#include <utility>

#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/data/memory_pool.h"
#include "strake/tasks/calibrate.h"
#include "strake/tasks/evaluate_language_model.h"
#include "strake/tasks/evaluation_rows.h"

namespace strake::tasks {
namespace {

scoring::ScoreReport score_rows(const scoring::ScoreConfig& config, scoring::ScoringModel& model, EvaluationRows& input,
                                scoring::TaskResults& results) {
  const auto start = Clock::now();
  scoring::ScoreReport report{
      .load_seconds = model.load_seconds, .precision = model.precision, .accuracy = model.accuracy};
  input.read(model, scoring::tokenizing_threads(config), [&](const rows::EncodedRows& rows) {
    results.add(rows, scoring::score_encoded(config, model, rows, 0, rows.num_rows()));
    report.rows += rows.num_rows();
    report.tokens += std::ssize(rows.ids);
    report.rows_cut += std::ssize(rows.cut_rows);
  });
  rows::tell_cut_rows(report.rows_cut, model.text);
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace

void EvaluateConfig::validate() const {
  score.validate();
  require(!score.text.label_column.empty(), ErrorKind::kUsage, "--label_column is empty");
  require(!calibrate || (score.precision.precision.empty() && !score.precision.bf16), ErrorKind::kUsage,
          "--calibrate compares all precisions: leave out --precision and --bf16");
  require(!calibrate || !score.gpu(), ErrorKind::kUsage,
          "--calibrate with --device {}: int8 is computed on processors only; leave out --device", score.device);
}

EvaluateReport evaluate(const EvaluateConfig& config) {
  data::choose_memory_pool();
  if (is_masked_lm(config)) return evaluate_masked_lm(config);
  config.validate();
  scoring::ScoringPlan plan = scoring::plan_scoring(config.score);
  if (plan.task.task == scoring::ScoringTask::kCausalLm) return evaluate_causal_lm(config, plan);
  EvaluationRows input(config, plan);
  if (config.calibrate) {
    Calibration calibration = calibrate(config.score, plan, input);
    return {.score = std::move(calibration.score), .metrics = std::move(calibration.metrics)};
  }
  scoring::ScoringModel model = scoring::load_scoring_model(config.score, plan);
  const auto results = input.new_results();
  EvaluateReport report{.score = score_rows(config.score, model, input, *results), .metrics = {}};
  require(report.score.rows > 0, ErrorKind::kData, "{} has no rows", config.score.input.front());
  report.metrics = results->metrics();
  return report;
}

}  // namespace strake::tasks
