#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "strake/rows/answer_spans.h"

namespace strake::rows {

// Tokens of a window, and those that it shares with its neighbour, as of Transformers' pipeline and run_qa.py.
inline constexpr int64_t kUsualWindow = 384;
inline constexpr int64_t kUsualStride = 128;
// --doc_stride for windows of so many tokens. Error (kUsage) if it is not less.
int64_t choose_doc_stride(std::optional<int64_t> doc_stride, int64_t max_seq_length);

// Flags of question answering, most of them with the names of Transformers' pipeline.
struct AnswerFlags {
  std::string question_column;
  std::string context_column;
  std::optional<int64_t> max_answer_len;
  std::optional<int64_t> top_k;
  std::optional<bool> handle_impossible_answer;
  std::optional<bool> align_to_words;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("question_column", self.question_column,
          "of question-answering: column with the question; default: question");
    visit("context_column", self.context_column,
          "of question-answering: column with the text that holds the answer; default: context");
    visit("max_answer_len", self.max_answer_len, "of question-answering: most tokens of an answer; default: 15");
    visit("top_k", self.top_k, "of question-answering: answers per row, the best ones; default: 1");
    visit("handle_impossible_answer", self.handle_impossible_answer,
          "of question-answering, true: the empty answer is one of those that are compared; default: false");
    visit("align_to_words", self.align_to_words,
          "of question-answering, false: answers begin and end with tokens, not with words; default: true");
  }
  void validate() const;

  std::string question_column_or_default() const { return question_column.empty() ? "question" : question_column; }
  std::string context_column_or_default() const { return context_column.empty() ? "context" : context_column; }
  AnswerRules rules() const;
  // The first of these flags that was given, with its dashes, or "".
  std::string first_given() const;
};

// Flags of strake train --task question-answering, with the names of Transformers' run_qa.py where it has them.
struct AnswerTrainingFlags {
  std::string question_column = "question";
  std::string context_column = "context";
  std::string answers_column = "answers";
  std::optional<int64_t> doc_stride;
  int64_t max_answer_length = 30;
  bool version_2_with_negative = false;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("question_column", self.question_column, "question-answering: column with the question");
    visit("context_column", self.context_column, "question-answering: column with the text that holds the answer");
    visit(
        "answers_column", self.answers_column,
        "question-answering: column with text and answer_start of the true answers, as Hugging Face's squad has them; "
        "the first one is learned, of none that there is none");
    visit("doc_stride", self.doc_stride,
          "question-answering: tokens that neighbouring windows of a long context share; default: 128, at most half of "
          "max_seq_length");
    visit("max_answer_length", self.max_answer_length,
          "question-answering: most tokens of an answer that an evaluation finds");
    visit("version_2_with_negative", self.version_2_with_negative,
          "question-answering: evaluations may find that there is no answer, and metrics are those of SQuAD 2.0");
  }
  void validate() const;
  AnswerRules rules() const;  // of evaluations
};

}  // namespace strake::rows
