#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace strake::tensors {

// Where named tensors lie in one flat buffer. Each begins on a multiple of 32 elements, that is on a 64-byte boundary
// for fp32 and for 16-bit buffers alike, so that matrix libraries see the same alignment in every layout and a buffer
// of another dtype has the same offsets. Gaps hold zeros.
class FlatLayout {
 public:
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    int64_t begin = 0;  // elements
    int64_t end = 0;    // elements, without the gap that follows
  };

  FlatLayout() = default;
  // Appends a tensor. Names must be unique (kInternal).
  void add(std::string name, std::vector<int64_t> shape);

  // Length of the buffer in elements, a multiple of 32.
  int64_t numel() const { return numel_; }
  const std::vector<Entry>& entries() const { return entries_; }
  // The entry's window of `flat`, in its shape. Shares storage.
  static at::Tensor view(const at::Tensor& flat, const Entry& entry);
  // Clears what lies between the tensors, so that sums over the whole buffer are those over its tensors.
  void zero_gaps(const at::Tensor& flat) const;

 private:
  std::vector<Entry> entries_;
  int64_t numel_ = 0;
};

// A flat buffer cut into one contiguous piece per rank.
class ShardLayout {
 public:
  // Cuts lie on multiples of this, so that blockwise sums (gradient norm) are the same numbers for every number of
  // shards.
  static constexpr int64_t kAlignment = 16384;
  struct Piece {
    int64_t begin = 0;  // elements
    int64_t end = 0;
  };

  // Equal pieces in the order of ranks; trailing ones may be shorter or empty.
  ShardLayout(int64_t numel, int num_shards);
  // pieces[r] is rank r's. They cover the buffer without overlap, in any order.
  explicit ShardLayout(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}

  int num_shards() const { return static_cast<int>(pieces_.size()); }
  int64_t begin(int shard) const { return pieces_[static_cast<size_t>(shard)].begin; }
  int64_t end(int shard) const { return pieces_[static_cast<size_t>(shard)].end; }
  int64_t size(int shard) const { return end(shard) - begin(shard); }
  // Of the buffer.
  int64_t numel() const {
    int64_t numel = 0;
    for (const Piece& piece : pieces_) numel = std::max(numel, piece.end);
    return numel;
  }

 private:
  std::vector<Piece> pieces_;
};

}  // namespace strake::tensors
