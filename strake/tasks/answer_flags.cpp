#include "strake/tasks/answer_flags.h"

#include <type_traits>

#include "strake/core/error.h"

namespace strake::tasks {
namespace {

constexpr int64_t kMostAnswers = 1000;

}  // namespace

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

}  // namespace strake::tasks
