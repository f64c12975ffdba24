#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strake/data/table_writer.h"
#include "strake/rows/squad_metrics.h"
#include "strake/rows/text_rows.h"

namespace strake::rows {

// How answers are made of tokens. The defaults are those of Transformers' question-answering pipeline.
struct AnswerRules {
  enum class Impossible { kRefused, kAllowed };  // kAllowed: the empty answer is compared with the others
  enum class Ends { kWords, kTokens };           // what an answer begins and ends with

  int64_t max_answer_len = 15;  // tokens
  int64_t top_k = 1;
  Impossible impossible = Impossible::kRefused;
  Ends ends = Ends::kWords;

  Places places() const { return ends == Ends::kWords ? Places::kOfWords : Places::kOfTokens; }
  SquadVersion squad_version() const {
    return impossible == Impossible::kAllowed ? SquadVersion::kTwo : SquadVersion::kOne;
  }
};

// Parts of a text by places in code points.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text);  // valid UTF-8, which must outlive this
  std::string_view part(int32_t begin, int32_t end) const;
  int32_t size() const { return static_cast<int32_t>(bytes_.size()) - 1; }

 private:
  std::string_view text_;
  std::vector<uint32_t> bytes_;  // where every code point begins, and the end
};

// Finds the answers to one question as Transformers 4.57's question-answering pipeline does: in each window the softmax
// over its first token ([CLS] or <s>, which stands for no answer) and the context's tokens, for begins and for ends;
// the score of a span is the product; the best 2 top_k + 10 spans of a window (top_k if they end with tokens) are
// widened to words; those of the same text but for upper and lower case, also in other windows, are one answer at the
// first one's place, whose score is their sum. (So a score can be more than 1.) The empty answer has the smallest score
// that a window gives it. Of equal scores the one that begins, then ends, first is better; the empty answer is the
// last.
class AnswerFinder {
 public:
  // `context` must outlive this.
  AnswerFinder(const AnswerRules& rules, std::string_view context);

  // `logits`: of begin and end, one pair per token. At least one of `places` must be in the context.
  void add_window(std::span<const float> logits, std::span<const TokenPlace> places);

  // At most top_k and at least one, best first; their labels are the answers' text.
  std::vector<data::LabelledSpan> finish();

 private:
  struct Answer {
    data::LabelledSpan span;  // without score
    double score;
    size_t found;  // how many were before it
  };
  void add(int32_t begin, int32_t end, float score);

  const AnswerRules& rules_;
  CodePoints context_;
  std::vector<Answer> answers_;            // in the order in which they were found
  std::map<std::string, size_t> by_text_;  // in lower case
  float empty_score_;
};

// The answers of row `row` of `rows`, which has windows with places. `logits`: of the row's tokens, more may follow.
std::vector<data::LabelledSpan> find_answers(const EncodedRows& rows, int64_t row, std::string_view context,
                                             std::span<const float> logits, const AnswerRules& rules);

// For the journal: 3 numbers per answer, the places as the bits of an int32.
constexpr int64_t kNumbersPerAnswer = 3;
// `numbers`: for at least as many answers; the rest is marked as not there.
void put_answers(std::span<const data::LabelledSpan> answers, std::span<float> numbers);
std::vector<data::LabelledSpan> get_answers(std::span<const float> numbers, std::string_view context);

}  // namespace strake::rows
