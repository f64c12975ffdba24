#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "strake/monitor/evaluation_metrics.h"
#include "strake/scoring/score_rows.h"

namespace strake::tasks {

struct EvaluateConfig {
  scoring::ScoreConfig score{.text = {.label_column = "label"}};
  std::string answers_column;
  bool label_all_tokens = false;
  double mlm_probability = 0.15;
  bool calibrate = false;
  std::set<std::string> given;  // names of fields that the user set, also if to their defaults

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    scoring::ScoreConfig::visit_fields(self.score, visit);
    scoring::TaskFlags::visit_fields(self.score.task, visit);
    visit("answers_column", self.answers_column,
          "of question-answering: column with the true answers: texts, lists of texts, or as Hugging Face's squad has "
          "them; default: answers, with --calibrate if it is there");
    visit("label_all_tokens", self.label_all_tokens,
          "of token-classification: compare all tokens of a word with its label, not only the first one");
    visit("mlm_probability", self.mlm_probability, "of masked-lm: share of the tokens that are predicted");
    visit("calibrate", self.calibrate,
          "measure how near bf16 and int8 come to fp32 on these rows, 500 or more for --precision auto to rely on it, "
          "choose the linear layers that int8 leaves in bf16, and write --precision_file");
  }
  void validate() const;
};

struct EvaluateReport {
  scoring::ScoreReport score;
  monitor::NamedValues metrics;
};

// Scores a labelled table and compares: classification or regression metrics, as the model's problem is, those of
// entities or of answers; loss and perplexity of a language model, with documents of more than --block_size tokens as
// rows_cut. With `calibrate` those of fp32, if there are labels, and what calibrate() found. Errors: kUsage for a task
// without metrics, and for flags of another task.
EvaluateReport evaluate(const EvaluateConfig& config);

}  // namespace strake::tasks
