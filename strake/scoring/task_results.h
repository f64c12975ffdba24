#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "strake/models/encoder/config.h"
#include "strake/monitor/evaluation_metrics.h"
#include "strake/rows/text_rows.h"
#include "strake/scoring/scoring_task.h"

namespace strake::scoring {

// What a pass over a table found, as far as it is compared: with the table's labels, and with what another precision
// found for the same rows.
class TaskResults {
 public:
  virtual ~TaskResults() = default;

  // `outputs`: what the head gives for all of `rows`, fp32 [sequences or tokens, width]. Rows come in their order.
  virtual void add(const rows::EncodedRows& rows, const at::Tensor& outputs) = 0;

  // Of all rows, by their labels; nothing without labels. Of answers, as SQuAD's scripts do, in percent; of pairs of
  // embeddings, the correlations of their cosine with their number.
  virtual monitor::NamedValues metrics() const { return {}; }
  // The one of metrics() that a lower precision may change by little, or "".
  virtual std::string main_metric() const { return ""; }

  // How near these are to `exact`, results of the same rows and task, from 0 to 1: the share of rows with the same
  // class, the same labels or the same text as their best answer, the share of tokens of the text (without [CLS] and
  // its like) with the same label, or of embeddings the mean cosine described at make_results(). None for numbers.
  // Error (kData) without rows or tokens to compare. Only of results that are made to be compared.
  virtual std::optional<double> agreement(const TaskResults& exact) const = 0;
};

// All of them, row by row.
std::span<const float> numbers_of(const at::Tensor& outputs);

struct ResultsOf {
  const TaskHead& task;
  const rows::TextOptions& text;
  const models::EncoderConfig& encoder;
  std::string answers_column = {};  // of question answering: with the true answers (data::text_lists); empty: none
  // Of token classification, tokens have classes; of embeddings, rows are pairs of sequences with a number, how alike
  // they are. Rows of text classification have labels always.
  bool has_labels = false;
  // agreement() will be asked for: what it needs of every row is kept.
  bool are_compared = false;
};

// Empty results of a task. Rows need labels for text classification, and the task's places.
//
// The cosine of embeddings is that between both precisions' vectors of a row, after all are scaled to length 1 and
// `exact`'s mean vector is subtracted from them. For many encoders all texts point nearly the same way, so that the
// plain cosine is high whatever the text is; without the mean only what tells rows apart counts, and one row alone has
// nothing.
std::unique_ptr<TaskResults> make_results(const ResultsOf& what);

}  // namespace strake::scoring
