#include "strake/rows/answer_flags.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "strake/core/error.h"

namespace strake::rows {
namespace {

constexpr int64_t kMostAnswers = 1000;

}  // namespace

int64_t choose_doc_stride(std::optional<int64_t> doc_stride, int64_t max_seq_length) {
  const int64_t chosen = doc_stride.value_or(std::min(kUsualStride, max_seq_length / 2));
  require(chosen < max_seq_length, ErrorKind::kUsage, "--doc_stride {} must be less than --max_seq_length {}", chosen,
          max_seq_length);
  return chosen;
}

void AnswerFlags::validate() const {
  require(!max_answer_len || *max_answer_len >= 1, ErrorKind::kUsage, "--max_answer_len {} must be positive",
          max_answer_len.value_or(0));
  require(!top_k || (*top_k >= 1 && *top_k <= kMostAnswers), ErrorKind::kUsage,
          "--top_k {} must be positive and at most {}", top_k.value_or(0), kMostAnswers);
}

AnswerRules AnswerFlags::rules() const {
  AnswerRules rules;
  rules.max_answer_len = max_answer_len.value_or(rules.max_answer_len);
  rules.top_k = top_k.value_or(rules.top_k);
  if (handle_impossible_answer.value_or(false)) rules.impossible = AnswerRules::Impossible::kAllowed;
  if (!align_to_words.value_or(true)) rules.ends = AnswerRules::Ends::kTokens;
  return rules;
}

std::string AnswerFlags::first_given() const {
  std::string first;
  visit_fields(*this, [&](const char* name, const auto& field, const char*) {
    bool is_given = false;
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::string>) {
      is_given = !field.empty();
    } else {
      is_given = field.has_value();
    }
    if (is_given && first.empty()) first = std::string("--") + name;
  });
  return first;
}

void AnswerTrainingFlags::validate() const {
  require(max_answer_length >= 1, ErrorKind::kUsage, "--max_answer_length {} must be positive", max_answer_length);
  require(doc_stride.value_or(0) >= 0, ErrorKind::kUsage, "--doc_stride {} is negative", doc_stride.value_or(0));
  const std::pair<const char*, std::string> columns[] = {
      {"question_column", question_column}, {"context_column", context_column}, {"answers_column", answers_column}};
  for (const auto& [flag, column] : columns) {
    require(!column.empty(), ErrorKind::kUsage, "--{} is empty", flag);
    for (const auto& [other, same] : columns) {
      require(flag == other || column != same, ErrorKind::kUsage, "--{} and --{} are both '{}'", flag, other,
              printable(column));
    }
  }
}

AnswerRules AnswerTrainingFlags::rules() const {
  using enum AnswerRules::Impossible;
  return {.max_answer_len = max_answer_length,
          .impossible = version_2_with_negative ? kAllowed : kRefused,
          .ends = AnswerRules::Ends::kTokens};
}

}  // namespace strake::rows
