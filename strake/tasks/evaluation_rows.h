#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "strake/rows/label_map.h"
#include "strake/scoring/scoring_model.h"
#include "strake/scoring/task_results.h"
#include "strake/tasks/evaluate.h"

namespace strake::tasks {

// What strake evaluate reads for an encoder's task: texts, and what the model's results for them are compared with.
class EvaluationRows {
 public:
  // Looks at the columns, and completes `plan`, which must outlive the rows, by what they hold. Errors: kUsage for a
  // task without metrics, and for flags of another one; kData for columns that are missing or do not hold what is
  // compared.
  EvaluationRows(const EvaluateConfig& config, scoring::ScoringPlan& plan);

  // Hands over all rows in their order, in constant memory; once. Errors: kData naming the row.
  void read(const scoring::ScoringModel& model, int workers, const std::function<void(rows::EncodedRows)>& sink);
  // Empty ones, to which read()'s rows are added.
  std::unique_ptr<scoring::TaskResults> new_results() const;

 private:
  const scoring::ScoringPlan& plan_;
  bool calibrates_ = false;
  std::string answers_column_;            // of question answering, with the true answers; empty: none
  bool label_all_tokens_ = false;         // of words
  std::optional<rows::LabelMap> labels_;  // of texts or, of token classification, their words
  std::optional<data::TableReader> table_;
};

}  // namespace strake::tasks
