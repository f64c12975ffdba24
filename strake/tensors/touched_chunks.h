#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace strake::tensors {

// Which elements of a flat buffer may differ from zero, in chunks. Of an embedding table's gradient that is little.
class TouchedChunks {
 public:
  static constexpr int64_t kChunk = 1024;  // elements

  TouchedChunks() = default;  // nothing is known: all of them may
  static TouchedChunks none(int64_t numel) {
    TouchedChunks chunks;
    chunks.flags_.resize(static_cast<size_t>((numel + kChunk - 1) / kChunk));
    return chunks;
  }

  void add(int64_t begin, int64_t end) {  // elements
    if (flags_.empty() || begin >= end) return;
    std::fill(flags_.begin() + begin / kChunk, flags_.begin() + (end + kChunk - 1) / kChunk, 1);
  }
  bool has(int64_t element) const { return flags_.empty() || flags_[static_cast<size_t>(element / kChunk)] != 0; }

 private:
  std::vector<uint8_t> flags_;  // empty: all
};

// visit(begin, end, is_touched) for neighbouring parts of elements [begin, end). `is_touched` tells of an element, for
// all of its chunk.
template <typename IsTouched, typename Visit>
void for_each_run(int64_t begin, int64_t end, const IsTouched& is_touched, const Visit& visit) {
  constexpr int64_t kChunk = TouchedChunks::kChunk;
  while (begin < end) {
    const bool touched = is_touched(begin);
    int64_t next = (begin / kChunk + 1) * kChunk;
    while (next < end && is_touched(next) == touched) next += kChunk;
    next = std::min(next, end);
    visit(begin, next, touched);
    begin = next;
  }
}

}  // namespace strake::tensors
