#include "strake/tasks/evaluate.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/memory_pool.h"
#include "strake/data/table_reader.h"
#include "strake/data/text_lists.h"
#include "strake/tasks/calibrate.h"
#include "strake/tasks/evaluate_causal_lm.h"
#include "strake/tasks/task_results.h"

namespace strake::tasks {
namespace {

void check_flags(const EvaluateConfig& config, ScoringTask task) {
  const bool classifies = task == ScoringTask::kTextClassification;
  const bool answers = task == ScoringTask::kQuestionAnswering;
  require(classifies || config.score.text.label_column == EvaluateConfig().score.text.label_column, ErrorKind::kUsage,
          "--label_column is of --task text-classification, and the task is {}", to_string(task));
  require(answers || config.answers_column.empty(), ErrorKind::kUsage,
          "--answers_column is of --task question-answering, and the task is {}", to_string(task));
  require(config.score.task.aggregation_strategy.empty(), ErrorKind::kUsage,
          "--aggregation_strategy is of strake predict and strake worker: strake evaluate compares the tokens' labels");
  require(
      config.calibrate || classifies || answers, ErrorKind::kUsage,
      "strake evaluate has metrics for text-classification and question-answering; for {} it has --calibrate, which "
      "compares bf16 and int8 with fp32 and needs no labels",
      to_string(task));
}

// The column that is read, which is there; "" if there is none, and none is needed.
std::string find_answers_column(const EvaluateConfig& config) {
  std::string column = config.answers_column.empty() ? "answers" : config.answers_column;
  if (!config.calibrate || !config.answers_column.empty()) return column;
  data::TableSource source = make_source(config.score.input, config.score.text.encoding);
  source.columns = {column};
  const std::vector<std::string> names = data::names_of_columns(source);
  if (std::ranges::find(names, column) != names.end()) return column;
  log::info("there is no column '{}': precisions are compared by their answers alone", column);
  return "";
}

// With the columns that the task reads and no others.
data::TableReader open_columns(const ScoreConfig& config, const ScoringPlan& plan, const std::string& answers_column) {
  const TextOptions& text = plan.text;
  data::TableSource source = make_source(config.input, config.text.encoding);
  for (const std::string& name :
       {text.text_column, text.text_pair_column,
        plan.task.task == ScoringTask::kTextClassification ? text.label_column : answers_column}) {
    const bool is_new = std::ranges::find(source.columns, name) == source.columns.end();
    if (!name.empty() && is_new) source.columns.push_back(name);
  }
  data::TableReader input = open_input(std::move(source), text);
  if (!answers_column.empty()) data::text_lists(input.no_rows(), answers_column);  // before an hour of scoring
  return input;
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
  config.validate();
  const ScoringPlan plan = plan_scoring(config.score);
  const ScoringTask task = plan.task.task;
  if (task == ScoringTask::kCausalLm) return evaluate_causal_lm(config, plan);
  check_flags(config, task);
  const std::string answers_column = task == ScoringTask::kQuestionAnswering ? find_answers_column(config) : "";
  data::TableReader input = open_columns(config.score, plan, answers_column);
  if (config.calibrate) {
    Calibration calibration = calibrate(config.score, plan, input, answers_column);
    return {.score = std::move(calibration.score), .metrics = std::move(calibration.metrics)};
  }
  ScoringModel model = load_scoring_model(config.score, plan);
  const models::EncoderConfig& encoder = plan.encoder();
  std::optional<LabelMap> labels;
  if (task == ScoringTask::kTextClassification) labels = LabelMap::of(encoder);
  const auto results = make_results({model.task, model.text, encoder, answers_column});
  EvaluateReport report;
  report.score = score_rows(config.score, model, labels ? &*labels : nullptr, input,
                            [&](const EncodedRows& rows, const at::Tensor& outputs) { results->add(rows, outputs); });
  require(report.score.rows > 0, ErrorKind::kData, "{} has no rows", config.score.input.front());
  report.metrics = results->metrics();
  return report;
}

}  // namespace strake::tasks
