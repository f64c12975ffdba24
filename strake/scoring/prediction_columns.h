#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <variant>
#include <vector>

#include "strake/data/table_writer.h"
#include "strake/scoring/scoring_task.h"

namespace strake::scoring {

// --keep_columns: the columns of the input that go into the output. None: all; one empty name: none at all.
class KeptColumns {
 public:
  explicit KeptColumns(const std::vector<std::string>& names);
  bool all() const { return all_; }
  const std::vector<std::string>& names() const { return names_; }  // if not all()
  data::Table of(const data::Table& table) const { return all_ ? table : table.select(names_); }

 private:
  std::vector<std::string> names_;
  bool all_ = true;
};

// What all words of lists are called: absent where a word has no token, or none within max_seq_length.
struct WordLabels {
  data::OptionalLists<std::string> names;
  data::OptionalLists<float> scores;
};

// Of a number of rows: logits, embeddings or losses, fp32 [rows, width]; of token classification entities, of question
// answering answers, best first, with their text as label.
using ScoredRows = std::variant<at::Tensor, data::SpanRows, WordLabels>;

// What is known of a row, as columns. Of text classification and regression:
//  prediction     the most probable label's name; of a regression model the number
//  probabilities  list<float>, one per label in order of id
//  logits         list<float>, likewise; of a regression model one number
//  label_id       the most probable label's id
//  score          its probability
// Of feature extraction:
//  embedding      list<float>, one per number of the hidden states
// Of token classification:
//  entities       list<struct<entity string, score float, start int32, end int32>>: parts of the text, in code points
// and of lists of words, null for words without a label:
//  prediction     list<string>: the label of each word
//  score          list<float>: its probability
// Of question answering:
//  answer         the best answer's text
//  score          and its score
//  start, end     and its place in the context, in code points
//  answers        list<struct<answer string, score float, start int32, end int32>>: the best top_k, best first
// Of a language model:
//  perplexity        of the text: e to the power of
//  loss              the mean negative log-likelihood of its predicted tokens; both are null where there are none
//  predicted_tokens  how many these are, int32
class PredictionColumns {
 public:
  // `names`: --output_columns; empty means prediction, and probabilities unless the model is a regression; embedding;
  // entities, or prediction of words; answer, score, start and end, with top_k answers; or perplexity and loss. Errors
  // (kUsage): unknown or repeated names, those of another task, and those of classes for a regression.
  PredictionColumns(const std::vector<std::string>& names, const TaskHead& task);

  // A row's values depend on its own outputs alone.
  std::vector<data::ExtraColumn> of(const ScoredRows& rows) const;
  const std::vector<std::string>& names() const { return names_; }
  // Error (kData) if one of the names is among those of the input that are kept. `file`: whose columns these are.
  void require_new(const std::vector<std::string>& input, const KeptColumns& kept, const std::string& file) const;

 private:
  std::vector<data::ExtraColumn> of_numbers(const at::Tensor& logits) const;
  std::vector<data::ExtraColumn> of_labels(const at::Tensor& logits) const;
  std::vector<data::ExtraColumn> of_classes(const at::Tensor& logits) const;
  std::vector<data::ExtraColumn> of_answers(const data::SpanRows& rows) const;
  std::vector<data::ExtraColumn> of_words(const WordLabels& words) const;
  std::vector<data::ExtraColumn> of_losses(const at::Tensor& numbers) const;

  std::vector<std::string> names_;
  ScoringTask task_;
  ClassRules classes_;
};

// The part of these checks that needs no model.
void check_output_columns(const std::vector<std::string>& names);

}  // namespace strake::scoring
