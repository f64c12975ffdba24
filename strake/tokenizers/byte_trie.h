#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace strake::tokenizers {

// Maps byte strings to values (0 or more), for longest-prefix search one byte at a time. The edges of all nodes share
// one open hash table keyed by (node, byte), so that building is linear and a step is one probe.
class ByteTrie {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kRoot = 0;

  ByteTrie();
  void insert(std::string_view key, int32_t value);

  // The node behind `node` and `byte`, or kNone.
  uint32_t step(uint32_t node, uint8_t byte) const {
    for (size_t slot = slot_of(node, byte);; slot = (slot + 1) & mask_) {
      if (edges_[slot].key == edge_key(node, byte)) return edges_[slot].node;
      if (edges_[slot].key == kFree) return kNone;
    }
  }
  // The node behind a whole key, or kNone.
  uint32_t walk(std::string_view key) const;
  // The value stored at a node, or -1.
  int32_t value(uint32_t node) const { return values_[node]; }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Edge {
    uint64_t key = kFree;
    uint32_t node = 0;
  };

  static uint64_t edge_key(uint32_t node, uint8_t byte) { return uint64_t{node} << 8 | byte; }
  size_t slot_of(uint32_t node, uint8_t byte) const {
    constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
    return static_cast<size_t>((edge_key(node, byte) * kGoldenRatio) >> 32) & mask_;
  }
  void add_edge(uint32_t node, uint8_t byte, uint32_t to);

  std::vector<int32_t> values_{-1};
  std::vector<Edge> edges_;
  size_t mask_ = 0;
};

}  // namespace strake::tokenizers
