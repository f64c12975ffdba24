#include "strake/rows/squad_metrics.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "strake/core/utf8.h"
#include "strake/tokenizers/unicode.h"

namespace strake::rows {
namespace {

bool is_ascii_punctuation(char32_t c) {
  return c < 0x80 && (tokenizers::char_class(c) & tokenizers::kPunctuation) != 0;
}

// As Python's str.isspace: White_Space and the four separators of ASCII.
bool is_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || (tokenizers::char_class(c) & tokenizers::kSpace) != 0; }

// \w of Python's regular expressions, but for the underscore, which is punctuation.
bool is_of_word(char32_t c) { return (tokenizers::char_class(c) & (tokenizers::kLetter | tokenizers::kNumber)) != 0; }

std::u32string lower_without_punctuation(std::string_view text) {
  std::u32string kept;
  for (size_t at = 0; at < text.size();) {
    char32_t lower[2];
    const int count = tokenizers::lowercase(tokenizers::next_char(text, at), lower);
    for (int i = 0; i < count; ++i) {
      if (!is_ascii_punctuation(lower[i])) kept.push_back(lower[i]);
    }
  }
  return kept;
}

// Each article becomes a space.
std::u32string without_articles(const std::u32string& text) {
  std::u32string kept;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && is_of_word(text[end])) ++end;
    const std::u32string word = text.substr(begin, end - begin);
    kept += word == U"a" || word == U"an" || word == U"the" ? U" " : word;
    if (end < text.size()) kept.push_back(text[end++]);
    begin = end;
  }
  return kept;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool is_inside = false;
  for (const char32_t c : without_articles(lower_without_punctuation(text))) {
    const bool was_inside = std::exchange(is_inside, !is_space(c));
    if (!is_inside) continue;
    if (!was_inside) words.emplace_back();
    append_utf8(c, words.back());
  }
  return words;
}

AnswerScore compare(const std::vector<std::string>& predicted, const std::vector<std::string>& truth,
                    SquadVersion version) {
  AnswerScore score{.exact_match = predicted == truth ? 1.0 : 0.0};
  if (version == SquadVersion::kTwo && (predicted.empty() || truth.empty())) {
    score.f1 = score.exact_match;
    return score;
  }
  std::map<std::string, int64_t> left;
  for (const std::string& word : truth) ++left[word];
  const auto shared = std::ranges::count_if(predicted, [&](const std::string& word) { return left[word]-- > 0; });
  if (shared == 0) return score;
  const double precision = static_cast<double>(shared) / static_cast<double>(predicted.size());
  const double recall = static_cast<double>(shared) / static_cast<double>(truth.size());
  score.f1 = (2 * precision * recall) / (precision + recall);
  return score;
}

}  // namespace

std::string normalized_answer(std::string_view text) {
  std::string normalized;
  for (const std::string& word : words_of(text)) normalized += (normalized.empty() ? "" : " ") + word;
  return normalized;
}

AnswerScore score_answer(std::string_view predicted, std::span<const std::string> truths, SquadVersion version) {
  const std::vector<std::string> words = words_of(predicted);
  std::vector<std::vector<std::string>> true_words;
  for (const std::string& truth : truths) {
    std::vector<std::string> of_truth = words_of(truth);
    if (version == SquadVersion::kOne || !of_truth.empty()) true_words.push_back(std::move(of_truth));
  }
  if (true_words.empty()) return compare(words, {}, SquadVersion::kTwo);
  AnswerScore best;
  for (const std::vector<std::string>& of_truth : true_words) {
    const AnswerScore score = compare(words, of_truth, version);
    best.exact_match = std::max(best.exact_match, score.exact_match);
    best.f1 = std::max(best.f1, score.f1);
  }
  return best;
}

}  // namespace strake::rows
