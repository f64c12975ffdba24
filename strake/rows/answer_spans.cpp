#include "strake/rows/answer_spans.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "strake/core/error.h"
#include "strake/core/utf8.h"
#include "strake/tokenizers/unicode.h"

namespace strake::rows {
namespace {

constexpr int32_t kNoAnswer = -1;  // in the journal

std::string in_lower_case(std::string_view text) {
  std::string lower;
  for (size_t at = 0; at < text.size();) {
    char32_t chars[2];
    const int count = tokenizers::lowercase(tokenizers::next_char(text, at), chars);
    for (int i = 0; i < count; ++i) append_utf8(chars[i], lower);
  }
  return lower;
}

// Softmax of every second logit over the first token and those of the context; elsewhere 0.
std::vector<float> probabilities(std::span<const float> logits, std::span<const TokenPlace> places, size_t which) {
  const auto is_candidate = [&](size_t token) { return token == 0 || !places[token].is_outside; };
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t token = 0; token < places.size(); ++token) {
    if (is_candidate(token)) largest = std::max(largest, logits[2 * token + which]);
  }
  std::vector<float> values(places.size());
  double sum = 0;
  for (size_t token = 0; token < places.size(); ++token) {
    if (is_candidate(token)) sum += values[token] = std::exp(logits[2 * token + which] - largest);
  }
  for (float& value : values) value /= static_cast<float>(sum);
  return values;
}

struct Span {
  float score;
  size_t begin;
  size_t end;

  bool operator<(const Span& other) const {  // is better
    if (score != other.score) return score > other.score;
    return begin != other.begin ? begin < other.begin : end < other.end;
  }
};

// The best spans of one window.
class BestSpans {
 public:
  explicit BestSpans(size_t most) : most_(most) {}

  void add(const Span& span) {
    if (heap_.size() == most_) {
      if (!(span < heap_.front())) return;
      std::ranges::pop_heap(heap_, std::less<>());
      heap_.pop_back();
    }
    heap_.push_back(span);
    std::ranges::push_heap(heap_, std::less<>());
  }

  std::vector<Span> sorted() {
    std::ranges::sort(heap_, std::less<>());
    return std::move(heap_);
  }

 private:
  size_t most_;
  std::vector<Span> heap_;  // the worst one is in front
};

}  // namespace

CodePoints::CodePoints(std::string_view text) : text_(text) {
  for (size_t at = 0; at < text.size(); tokenizers::next_char(text, at)) bytes_.push_back(static_cast<uint32_t>(at));
  bytes_.push_back(static_cast<uint32_t>(text.size()));
}

std::string_view CodePoints::part(int32_t begin, int32_t end) const {
  return text_.substr(bytes_[begin], bytes_[end] - bytes_[begin]);
}

AnswerFinder::AnswerFinder(const AnswerRules& rules, std::string_view context)
    : rules_(rules), context_(context), empty_score_(std::numeric_limits<float>::max()) {}

void AnswerFinder::add_window(std::span<const float> logits, std::span<const TokenPlace> places) {
  std::vector<float> begins = probabilities(logits, places, 0);
  const std::vector<float> ends = probabilities(logits, places, 1);
  empty_score_ = std::min(empty_score_, begins[0] * ends[0]);
  // Some spans become the same answer when they are widened.
  BestSpans best(static_cast<size_t>(rules_.ends == AnswerRules::Ends::kWords ? 2 * rules_.top_k + 10 : rules_.top_k));
  for (size_t begin = 1; begin < places.size(); ++begin) {
    if (places[begin].is_outside) continue;
    const auto longest = static_cast<size_t>(std::min(rules_.max_answer_len, std::ssize(places)));
    for (size_t end = begin; end < std::min(begin + longest, places.size()); ++end) {
      if (!places[end].is_outside) best.add({begins[begin] * ends[end], begin, end});
    }
  }
  for (const Span& span : best.sorted()) add(places[span.begin].begin, places[span.end].end, span.score);
}

void AnswerFinder::add(int32_t begin, int32_t end, float score) {
  end = std::max(begin, end);  // a normalizer may have reordered marks
  const std::string_view text = context_.part(begin, end);
  const auto [known, is_new] = by_text_.try_emplace(in_lower_case(text), answers_.size());
  if (is_new) {
    answers_.push_back(
        {.span = {.label = std::string(text), .begin = begin, .end = end}, .score = score, .found = answers_.size()});
  } else {
    answers_[known->second].score += score;
  }
}

std::vector<data::LabelledSpan> AnswerFinder::finish() {
  if (rules_.impossible == AnswerRules::Impossible::kAllowed) {
    answers_.push_back({.span = {}, .score = empty_score_, .found = answers_.size()});
  }
  const auto is_better = [](const Answer& a, const Answer& b) {
    return a.score != b.score ? a.score > b.score : a.found < b.found;
  };
  std::ranges::sort(answers_, is_better);
  if (std::ssize(answers_) > rules_.top_k) answers_.resize(static_cast<size_t>(rules_.top_k));
  std::vector<data::LabelledSpan> best;
  for (Answer& answer : answers_) {
    best.push_back(std::move(answer.span));
    best.back().score = static_cast<float>(answer.score);
  }
  return best;
}

std::vector<data::LabelledSpan> find_answers(const EncodedRows& rows, int64_t row, std::string_view context,
                                             std::span<const float> logits, const AnswerRules& rules) {
  AnswerFinder finder(rules, context);
  for (int64_t window = rows.first_sequence(row); window < rows.first_sequence(row + 1); ++window) {
    const auto first = static_cast<size_t>(rows.offsets[window]);
    const auto tokens = static_cast<size_t>(rows.offsets[window + 1]) - first;
    finder.add_window(logits.first(2 * tokens), std::span(rows.places).subspan(first, tokens));
    logits = logits.subspan(2 * tokens);
  }
  return finder.finish();
}

void put_answers(std::span<const data::LabelledSpan> answers, std::span<float> numbers) {
  for (auto next = numbers.begin(); next != numbers.end(); next += kNumbersPerAnswer) {
    const auto index = static_cast<size_t>((next - numbers.begin()) / kNumbersPerAnswer);
    const data::LabelledSpan answer =
        index < answers.size() ? answers[index] : data::LabelledSpan{.begin = kNoAnswer, .end = kNoAnswer};
    next[0] = std::bit_cast<float>(answer.begin);
    next[1] = std::bit_cast<float>(answer.end);
    next[2] = answer.score;
  }
}

std::vector<data::LabelledSpan> get_answers(std::span<const float> numbers, std::string_view context) {
  const CodePoints points(context);
  std::vector<data::LabelledSpan> answers;
  for (auto next = numbers.begin(); next != numbers.end(); next += kNumbersPerAnswer) {
    const auto begin = std::bit_cast<int32_t>(next[0]);
    const auto end = std::bit_cast<int32_t>(next[1]);
    if (begin == kNoAnswer) break;
    require(begin >= 0 && begin <= end && end <= points.size(), ErrorKind::kData,
            "an answer from {} to {} of a context of {} characters", begin, end, points.size());
    answers.push_back({.label = std::string(points.part(begin, end)), .score = next[2], .begin = begin, .end = end});
  }
  return answers;
}

}  // namespace strake::rows
