#include "strake/tokenizers/encoding.h"

#include <algorithm>

#include "strake/core/error.h"

namespace strake::tokenizers {
namespace {

// Calls visit(member of a, member of b) for every per-token vector.
template <typename A, typename B, typename Visit>
void visit_fields(A& a, B& b, const Visit& visit) {
  visit(a.ids, b.ids);
  visit(a.type_ids, b.type_ids);
  visit(a.attention_mask, b.attention_mask);
  visit(a.special_tokens_mask, b.special_tokens_mask);
  visit(a.offsets, b.offsets);
  visit(a.tokens, b.tokens);
  visit(a.sources, b.sources);
}

void append_tokens(Encoding& encoding, const Encoding& next) {
  visit_fields(encoding, next, [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); });
}

std::vector<std::pair<int64_t, int64_t>> windows(int64_t size, int64_t max_length, int64_t stride,
                                                 Direction direction) {
  require(stride < max_length, ErrorKind::kConfig,
          "stride {} must be less than the {} tokens that truncation leaves after the special tokens", stride,
          max_length);
  const int64_t step = max_length - stride;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  if (direction == Direction::kRight) {
    for (int64_t begin = 0; ranges.empty() || ranges.back().second < size; begin += step)
      ranges.emplace_back(begin, std::min(begin + max_length, size));
  } else {
    for (int64_t end = size; ranges.empty() || ranges.back().first > 0; end -= step)
      ranges.emplace_back(std::max<int64_t>(end - max_length, 0), end);
  }
  return ranges;
}

// Of a text that alone gives way to another one of `size` tokens.
void require_room(int64_t size, int64_t max_length) {
  require(max_length > size, ErrorKind::kData,
          "Truncation error: Sequence to truncate too short to respect the provided max_length");
}

void pad_one(Encoding& encoding, int64_t length, const Padding& padding) {
  const int64_t missing = length - static_cast<int64_t>(encoding.size());
  if (missing <= 0) return;
  const auto extend = [&](auto& values, const auto& filler) {
    const auto at = padding.direction == Direction::kRight ? values.end() : values.begin();
    values.insert(at, static_cast<size_t>(missing), filler);
  };
  extend(encoding.ids, padding.pad_id);
  extend(encoding.type_ids, padding.pad_type_id);
  extend(encoding.attention_mask, 0);
  extend(encoding.special_tokens_mask, 1);
  extend(encoding.offsets, std::pair<int32_t, int32_t>{0, 0});
  extend(encoding.tokens, padding.pad_token);
  extend(encoding.sources, TokenSource{});
}

}  // namespace

Encoding part_of(const Encoding& encoding, int64_t begin, int64_t end) {
  Encoding cut;
  visit_fields(cut, encoding, [&](auto& to, const auto& from) { to.assign(from.begin() + begin, from.begin() + end); });
  return cut;
}

void truncate(Encoding& encoding, int64_t max_length, int64_t stride, Direction direction) {
  const auto size = static_cast<int64_t>(encoding.size());
  if (max_length >= size) return;
  if (max_length == 0) {
    Encoding all;
    std::swap(all, encoding);
    encoding.overflowing.push_back(std::move(all));
    return;
  }
  const auto ranges = windows(size, max_length, stride, direction);
  Encoding first = part_of(encoding, ranges[0].first, ranges[0].second);
  for (size_t i = 1; i < ranges.size(); ++i)
    first.overflowing.push_back(part_of(encoding, ranges[i].first, ranges[i].second));
  encoding = std::move(first);
}

std::vector<std::pair<int64_t, int64_t>> windows_of_second(int64_t first_size, int64_t size,
                                                           const Truncation& truncation) {
  if (first_size + size <= truncation.max_length) return {{0, size}};
  require_room(first_size, truncation.max_length);
  return windows(size, truncation.max_length - first_size, truncation.stride,
                 truncation.direction.value_or(Direction::kRight));
}

void truncate_pair(Encoding& first, Encoding* second, const Truncation& truncation) {
  const int64_t max_length = truncation.max_length;
  const auto first_size = static_cast<int64_t>(first.size());
  const int64_t second_size = second ? static_cast<int64_t>(second->size()) : 0;
  const int64_t excess = first_size + second_size - max_length;
  const auto cut = [&](Encoding& encoding, int64_t length) {
    truncate(encoding, length, truncation.stride, truncation.direction.value_or(Direction::kRight));
  };
  if (max_length == 0) {
    cut(first, 0);
    if (second) cut(*second, 0);
    return;
  }
  if (excess <= 0) return;
  if (truncation.strategy != TruncationStrategy::kLongestFirst) {
    Encoding* target = truncation.strategy == TruncationStrategy::kOnlyFirst ? &first : second;
    require(target != nullptr, ErrorKind::kData, "Truncation error: Second sequence not provided");
    const auto size = static_cast<int64_t>(target->size());
    require_room(max_length + excess - size, max_length);
    cut(*target, size - excess);
    return;
  }
  if (second == nullptr) return cut(first, max_length);
  const auto [of_first, of_second] = longest_first(first_size, second_size, max_length);
  cut(first, of_first);
  cut(*second, of_second);
}

std::pair<int64_t, int64_t> longest_first(int64_t first, int64_t second, int64_t room) {
  int64_t shorter = std::min(first, second);
  int64_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = shorter + room % 2;
  }
  return first > second ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

void append(Encoding& encoding, Encoding next) {
  std::vector<Encoding> combined;
  const auto combine = [&combined](const Encoding& left, const Encoding& right) {
    combined.push_back(part_of(left, 0, static_cast<int64_t>(left.size())));
    append_tokens(combined.back(), right);
  };
  // A long text has many windows: they go as soon as they are copied.
  for (Encoding& own : encoding.overflowing) {
    combine(own, next);
    for (const Encoding& other : next.overflowing) combine(own, other);
    own = {};
  }
  for (Encoding& other : next.overflowing) {
    combine(encoding, other);
    other = {};
  }
  append_tokens(encoding, next);
  encoding.overflowing = std::move(combined);
}

void pad(Encoding& encoding, const Padding& padding) {
  int64_t length = padding.length.value_or(static_cast<int64_t>(encoding.size()));
  const int64_t multiple = padding.pad_to_multiple_of.value_or(0);
  if (multiple > 0) length = (length + multiple - 1) / multiple * multiple;
  pad_one(encoding, length, padding);
  for (Encoding& overflow : encoding.overflowing) pad_one(overflow, length, padding);
}

}  // namespace strake::tokenizers
