#include "strake/tasks/evaluation_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/label_lists.h"
#include "strake/data/text_lists.h"
#include "strake/rows/labelled_words.h"

namespace strake::tasks {
namespace {

// Of embeddings, which a calibration compares without it, too.
bool compares_pairs(const EvaluateConfig& config) { return !config.calibrate || config.given.contains("label_column"); }

void check_flags(const EvaluateConfig& config, scoring::ScoringTask task) {
  const bool answers = task == scoring::ScoringTask::kQuestionAnswering;
  const bool tags = task == scoring::ScoringTask::kTokenClassification;
  const bool embeds = task == scoring::ScoringTask::kFeatureExtraction;
  const auto belongs = [&](bool fits, const char* flag, const char* owner) {
    require(fits || !config.given.contains(flag), ErrorKind::kUsage, "--{} is of --task {}, and the task is {}", flag,
            owner, to_string(task));
  };
  belongs(!answers, "label_column", "text-classification, token-classification and feature-extraction");
  belongs(answers, "answers_column", "question-answering");
  belongs(tags, "label_all_tokens", "token-classification");
  belongs(false, "mlm_probability", "masked-lm");
  require(config.score.task.aggregation_strategy.empty(), ErrorKind::kUsage,
          "--aggregation_strategy is of strake predict and strake worker: strake evaluate compares the tokens' labels");
  require(!config.given.contains("top_k"), ErrorKind::kUsage,
          "--top_k is of strake predict and strake worker: strake evaluate compares the best answer");
  require(
      !embeds || !compares_pairs(config) || !config.score.text.text_pair_column.empty(), ErrorKind::kUsage,
      "strake evaluate compares the vectors of two texts, of --text_column and --text_pair_column, with a number, "
      "how alike they are, of --label_column; --calibrate, which compares bf16 and int8 with fp32, needs only texts");
}

data::TableSource source_of(const EvaluateConfig& config, std::vector<std::string> columns) {
  data::TableSource source = rows::make_source(config.score.input, config.score.text.encoding);
  for (std::string& name : columns) {
    const bool is_new = std::ranges::find(source.columns, name) == source.columns.end();
    if (is_new && !name.empty()) source.columns.push_back(std::move(name));
  }
  return source;
}

bool has_column(const EvaluateConfig& config, const std::string& column) {
  const std::vector<std::string> names = data::names_of_columns(source_of(config, {column}));
  return std::ranges::find(names, column) != names.end();
}

// The column that is read, which is there; "" if there is none, and none is needed.
std::string find_answers_column(const EvaluateConfig& config) {
  std::string column = config.answers_column.empty() ? "answers" : config.answers_column;
  if (!config.calibrate || !config.answers_column.empty() || has_column(config, column)) return column;
  log::info("there is no column '{}': precisions are compared by their answers alone", column);
  return "";
}

// Whether words are compared with their labels, which a calibration does without where there are none, as in texts.
bool compares_words(const EvaluateConfig& config, bool are_words, const std::string& label_column) {
  if (!config.calibrate) return true;
  if (are_words && (config.given.contains("label_column") || has_column(config, label_column))) return true;
  for (const char* flag : {"label_column", "label_all_tokens"}) {
    require(!config.given.contains(flag), ErrorKind::kUsage,
            "--{} with --calibrate is of lists of words that have labels, and column '{}' holds {}", flag,
            config.score.text.text_column, are_words ? "words without" : "texts");
  }
  log::info("column '{}' holds {}: precisions are compared by their labels alone", config.score.text.text_column,
            are_words ? "words without labels" : "texts, not lists of words with labels");
  return false;
}

}  // namespace

EvaluationRows::EvaluationRows(const EvaluateConfig& config, scoring::ScoringPlan& plan)
    : plan_(plan), calibrates_(config.calibrate), label_all_tokens_(config.label_all_tokens) {
  const scoring::ScoringTask task = plan.task.task;
  check_flags(config, task);
  const rows::TextOptions& text = plan.text;
  const data::TableReader texts(source_of(config, {text.text_column, text.text_pair_column}));
  scoring::look_at_columns(plan, config.score.task, texts.no_rows());
  if (task == scoring::ScoringTask::kTokenClassification &&
      compares_words(config, text.form == rows::RowForm::kWords, text.label_column)) {
    labels_ = rows::labels_of_words(plan.encoder());
    table_.emplace(rows::open_words(config.score.input, text));
    return;
  }
  if (task == scoring::ScoringTask::kQuestionAnswering) answers_column_ = find_answers_column(config);
  if (task == scoring::ScoringTask::kTextClassification) labels_ = rows::LabelMap::of(plan.encoder());
  if (task == scoring::ScoringTask::kFeatureExtraction && compares_pairs(config)) labels_ = rows::LabelMap::numbers();
  const std::string& compared = labels_ ? text.label_column : answers_column_;
  table_.emplace(rows::open_input(source_of(config, {text.text_column, text.text_pair_column, compared}), text));
  if (!answers_column_.empty()) data::text_lists(table_->no_rows(), answers_column_);  // before an hour of scoring
}

void EvaluationRows::read(const scoring::ScoringModel& model, int workers,
                          const std::function<void(rows::EncodedRows)>& sink) {
  if (labels_ && plan_.task.task == scoring::ScoringTask::kTokenClassification) {
    bool has_label = false;
    const auto look = [&](rows::EncodedRows rows) {
      const auto is_class = [](int32_t id) { return id != data::kNoClass; };
      has_label = has_label || std::ranges::any_of(rows.classes, is_class);
      sink(std::move(rows));
    };
    rows::for_each_labelled(*table_, {model.tokenizer, model.text, *labels_, label_all_tokens_}, workers, look);
    require(has_label, ErrorKind::kData, "{}: no row has a labelled word", table_->files().front().string());
    return;
  }
  rows::TextOptions text = model.text;
  text.strips_questions = plan_.task.task == scoring::ScoringTask::kQuestionAnswering;  // for the numbers of training
  if (labels_ && plan_.task.task == scoring::ScoringTask::kFeatureExtraction) text.form = rows::RowForm::kApart;
  const rows::LabelMap* labels = labels_ ? &*labels_ : nullptr;
  rows::for_each_encoded(*table_, {model.tokenizer, text, labels, model.places()}, workers, sink);
}

std::unique_ptr<scoring::TaskResults> EvaluationRows::new_results() const {
  return scoring::make_results({.task = plan_.task,
                                .text = plan_.text,
                                .encoder = plan_.encoder(),
                                .answers_column = answers_column_,
                                .has_labels = labels_.has_value(),
                                .are_compared = calibrates_});
}

}  // namespace strake::tasks
