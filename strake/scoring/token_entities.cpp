#include "strake/scoring/token_entities.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "strake/core/error.h"

namespace strake::scoring {
namespace {

constexpr std::string_view kNoEntity = "O";

// A label that the tag scheme cuts: only B- begins an entity behind another one of its tag.
struct Tag {
  bool begins;
  std::string_view name;
};

Tag tag_of(std::string_view label) {
  if (label.starts_with("B-") || label.starts_with("I-")) return {label.front() == 'B', label.substr(2)};
  return {false, label};
}

// Behind the first '-', as the pipeline shows a group of any label.
std::string group_name(const std::string& label) { return label.substr(label.find('-') + 1); }

bool makes_groups(const EntityRules& rules) {
  return rules.aggregation != Aggregation::kNone && rules.of == EntityRules::Of::kTexts;
}

// As entities of the label are called.
std::string entity_name(const EntityRules& rules, const std::string& label) {
  return makes_groups(rules) ? group_name(label) : label;
}

void take_softmax(std::span<const float> logits, std::vector<float>& probabilities) {
  const float largest = std::ranges::max(logits);
  float sum = 0;
  probabilities.clear();
  for (const float logit : logits) {
    probabilities.push_back(std::exp(logit - largest));
    sum += probabilities.back();
  }
  for (float& probability : probabilities) probability /= sum;
}

// The tokens of a row that get one label together: one token, or those of a word.
class LabelledWord {
 public:
  explicit LabelledWord(Aggregation aggregation) : aggregation_(aggregation) {}

  bool is_empty() const { return tokens_ == 0; }
  void begin(const rows::TokenPlace& place, std::span<const float> logits) {
    place_ = place;
    tokens_ = 1;
    take_softmax(logits, probabilities_);
  }
  void add(const rows::TokenPlace& place, std::span<const float> logits) {
    place_.end = place.end;
    ++tokens_;
    if (aggregation_ == Aggregation::kFirst) return;
    take_softmax(logits, next_);
    if (aggregation_ == Aggregation::kAverage) {
      std::ranges::transform(probabilities_, next_, probabilities_.begin(), std::plus());
    } else if (std::ranges::max(next_) > std::ranges::max(probabilities_)) {
      probabilities_.swap(next_);
    }
  }
  void clear() { tokens_ = 0; }

  const rows::TokenPlace& place() const { return place_; }
  // The first of the most probable labels, and its probability.
  std::pair<size_t, float> label() const {
    const auto best = std::ranges::max_element(probabilities_);
    const float share = aggregation_ == Aggregation::kAverage ? static_cast<float>(tokens_) : 1.0F;
    return {static_cast<size_t>(best - probabilities_.begin()), *best / share};
  }

 private:
  Aggregation aggregation_;
  rows::TokenPlace place_;
  int64_t tokens_ = 0;
  std::vector<float> probabilities_;  // of labels; with kAverage their sums over tokens
  std::vector<float> next_;
};

// Entities of one row, token by token.
class EntityFinder {
 public:
  explicit EntityFinder(const EntityRules& rules) : rules_(rules), word_(rules.aggregation) {}

  void add(const rows::TokenPlace& place, std::span<const float> logits) {
    if (!word_.is_empty() && place.continues_word) {
      word_.add(place, logits);
      return;
    }
    close_word();
    word_.begin(place, logits);
  }

  std::vector<data::LabelledSpan> finish() {
    close_word();
    close();
    return std::exchange(found_, {});
  }

 private:
  void close_word() {
    if (word_.is_empty()) return;
    const auto [id, score] = word_.label();
    const rows::TokenPlace& place = word_.place();
    word_.clear();
    const std::string& label = rules_.labels[id];
    const Tag tag = tag_of(label);
    if (words_ > 0 && makes_groups(rules_) && !tag.begins && tag.name == last_tag_) {
      scores_ += score;
      ++words_;
      current_.end = place.end;
      return;
    }
    close();
    current_ = {.label = entity_name(rules_, label), .begin = place.begin, .end = place.end};
    last_tag_ = tag.name;
    scores_ = score;
    words_ = 1;
  }
  void close() {
    if (words_ > 0 && (rules_.of == EntityRules::Of::kWords || current_.label != kNoEntity)) {
      current_.score = scores_ / static_cast<float>(words_);
      found_.push_back(current_);
    }
    words_ = 0;
  }

  const EntityRules& rules_;
  LabelledWord word_;
  std::vector<data::LabelledSpan> found_;
  data::LabelledSpan current_;
  std::string_view last_tag_;
  float scores_ = 0;
  int64_t words_ = 0;  // of the current entity; tokens where words are not joined
};

}  // namespace

data::SpanRows find_entities(const rows::EncodedRows& rows, int64_t begin, int64_t end, const at::Tensor& logits,
                             const EntityRules& rules) {
  const auto width = static_cast<size_t>(logits.size(1));
  const auto* next = logits.const_data_ptr<float>();
  data::SpanRows found;
  EntityFinder finder(rules);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t token = rows.offsets[row]; token < rows.offsets[row + 1]; ++token, next += width) {
      const rows::TokenPlace& place = rows.places[static_cast<size_t>(token)];
      if (!place.is_outside) finder.add(place, {next, width});
    }
    found.push_back(finder.finish());
  }
  return found;
}

void append_numbers(const std::vector<data::LabelledSpan>& entities, const EntityRules& rules,
                    std::vector<float>& numbers) {
  numbers.push_back(std::bit_cast<float>(static_cast<int32_t>(entities.size())));
  for (const data::LabelledSpan& entity : entities) {
    const auto label = std::ranges::find_if(
        rules.labels, [&](const std::string& name) { return entity_name(rules, name) == entity.label; });
    numbers.push_back(std::bit_cast<float>(static_cast<int32_t>(label - rules.labels.begin())));
    numbers.push_back(entity.score);
    numbers.push_back(std::bit_cast<float>(entity.begin));
    numbers.push_back(std::bit_cast<float>(entity.end));
  }
}

std::vector<data::LabelledSpan> read_entities(const std::function<void(std::span<float>)>& read,
                                              const EntityRules& rules) {
  float count = 0;
  read({&count, 1});
  std::vector<data::LabelledSpan> entities;
  for (auto left = std::bit_cast<int32_t>(count); left > 0; --left) {
    std::array<float, 4> numbers{};
    read(numbers);
    const auto label = std::bit_cast<int32_t>(numbers[0]);
    require(label >= 0 && label < std::ssize(rules.labels), ErrorKind::kData, "an entity of label {} of {}", label,
            rules.labels.size());
    entities.push_back({.label = entity_name(rules, rules.labels[static_cast<size_t>(label)]),
                        .score = numbers[1],
                        .begin = std::bit_cast<int32_t>(numbers[2]),
                        .end = std::bit_cast<int32_t>(numbers[3])});
  }
  return entities;
}

}  // namespace strake::scoring
