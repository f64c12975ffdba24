#include "strake/tokenizers/byte_trie.h"

namespace strake::tokenizers {

ByteTrie::ByteTrie() {
  constexpr size_t kSmallest = 64;
  edges_.resize(kSmallest);
  mask_ = kSmallest - 1;
}

void ByteTrie::insert(std::string_view key, int32_t value) {
  uint32_t node = kRoot;
  for (const char c : key) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t next = step(node, byte);
    if (next == kNone) {
      next = static_cast<uint32_t>(values_.size());
      values_.push_back(-1);
      add_edge(node, byte, next);
    }
    node = next;
  }
  values_[node] = value;
}

uint32_t ByteTrie::walk(std::string_view key) const {
  uint32_t node = kRoot;
  for (const char c : key) {
    node = step(node, static_cast<uint8_t>(c));
    if (node == kNone) break;
  }
  return node;
}

void ByteTrie::add_edge(uint32_t node, uint8_t byte, uint32_t to) {
  if (2 * values_.size() > edges_.size()) {
    std::vector<Edge> old(2 * edges_.size());
    old.swap(edges_);
    mask_ = edges_.size() - 1;
    for (const Edge& edge : old)
      if (edge.key != kFree) add_edge(static_cast<uint32_t>(edge.key >> 8), static_cast<uint8_t>(edge.key), edge.node);
  }
  size_t slot = slot_of(node, byte);
  while (edges_[slot].key != kFree) slot = (slot + 1) & mask_;
  edges_[slot] = {edge_key(node, byte), to};
}

}  // namespace strake::tokenizers
