#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace strake::tensors {

// Which elements of a flat buffer may differ from zero, in chunks. Of an embedding table's gradient that is little.
class TouchedChunks {
 public:
  static constexpr int64_t kChunk = 1024;  // elements

  TouchedChunks() = default;  // nothing is known: all of them may
  // By chunk, 1 or 0.
  explicit TouchedChunks(std::vector<uint8_t> flags) : flags_(std::move(flags)) {}
  static TouchedChunks none(int64_t numel) { return TouchedChunks(std::vector<uint8_t>(num_chunks(numel))); }
  // Of a buffer of `numel` elements.
  std::vector<uint8_t> flags(int64_t numel) const {
    return flags_.empty() ? std::vector<uint8_t>(num_chunks(numel), 1) : flags_;
  }

  void add(int64_t begin, int64_t end) {  // elements
    if (flags_.empty() || begin >= end) return;
    std::fill(flags_.begin() + begin / kChunk, flags_.begin() + (end + kChunk - 1) / kChunk, 1);
  }
  bool has(int64_t element) const { return flags_.empty() || flags_[static_cast<size_t>(element / kChunk)] != 0; }
  // How many of elements [begin, end).
  int64_t count(int64_t begin, int64_t end) const {
    int64_t touched = 0;
    for (int64_t next = 0; begin < end; begin = next) {
      next = std::min(end, (begin / kChunk + 1) * kChunk);
      touched += has(begin) ? next - begin : 0;
    }
    return touched;
  }

 private:
  static size_t num_chunks(int64_t numel) { return static_cast<size_t>((numel + kChunk - 1) / kChunk); }

  std::vector<uint8_t> flags_;  // empty: all
};

// visit(begin, end) for neighbouring parts of elements [begin, end), as long as is_same(first, next) says of elements
// of neighbouring chunks that they belong together.
template <typename IsSame, typename Visit>
void for_each_alike(int64_t begin, int64_t end, const IsSame& is_same, const Visit& visit) {
  constexpr int64_t kChunk = TouchedChunks::kChunk;
  while (begin < end) {
    int64_t next = (begin / kChunk + 1) * kChunk;
    while (next < end && is_same(begin, next)) next += kChunk;
    next = std::min(next, end);
    visit(begin, next);
    begin = next;
  }
}

// visit(begin, end, is_touched). `is_touched` tells of an element, for all of its chunk.
template <typename IsTouched, typename Visit>
void for_each_run(int64_t begin, int64_t end, const IsTouched& is_touched, const Visit& visit) {
  for_each_alike(
      begin, end, [&](int64_t first, int64_t next) { return is_touched(first) == is_touched(next); },
      [&](int64_t from, int64_t to) { visit(from, to, is_touched(from)); });
}

}  // namespace strake::tensors
