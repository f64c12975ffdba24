#pragma once

#include <type_traits>

#include "strake/kernels/cuda/attention_tiles.cuh"
#include "strake/kernels/cuda/warp_products.cuh"

// Which probabilities dropout keeps. AttentionShape::kept has for every head and token as query, and for every tile of
// keys, two words of kTile / 2 bits: bit 4 n + b of word j is key 8 n + 4 j + b of the tile, so that a quad of keys,
// which is drawn at once, lies together, and a tile's products need no other bits than those that a lane has anyway.
// A warp's 16 queries have 32 words: a lane draws, keeps and loads one.
namespace strake::kernels::cuda {

template <typename Size>
using KeptWord =
    std::conditional_t<Size::kTile == 64, uint32_t, std::conditional_t<Size::kTile == 32, uint16_t, uint8_t>>;

// Of a token of the block's head.
template <typename Size>
__device__ KeptWord<Size>& kept_word(const AttentionShape& shape, int64_t token, int first_key, int word) {
  static_assert(sizeof(KeptWord<Size>) * 16 == Size::kTile);
  uint8_t* of_token = shape.kept + (blockIdx.y * shape.num_tokens + token) * shape.kept_bytes;
  return reinterpret_cast<KeptWord<Size>*>(of_token + first_key / 8)[word];
}

// Of a fragment whose rows are queries.
class KeptRows {
 public:
  // `own` is the lane's word: word word() of row row(). Its neighbour has the same keys of the lane's other row.
  __device__ explicit KeptRows(uint32_t own) {
    const uint32_t other = __shfl_xor_sync(0xFFFFFFFFU, own, 1);
    const bool has_lower = lane_of_warp() % 2 != 0;
    const int shift = lane_of_warp() % 2 * 2;
    of_[0] = (has_lower ? other : own) >> shift;
    of_[1] = (has_lower ? own : other) >> shift;
  }
  static __device__ int row() { return first_row_of_warp() + row_of(lane_of_warp() % 2 * 2); }
  static __device__ int word() { return lane_of_warp() % 4 / 2; }

  __device__ bool has(int n, int i) const { return (of_[i / 2] >> (4 * n + i % 2) & 1U) != 0; }

 private:
  uint32_t of_[2];
};

// The lane's word for the block's tile of queries and a tile of keys, kept for the backward pass if that is wanted.
// `counter` is that of row KeptRows::row(), or of any if the sequence has none there: its words are not used.
template <typename Size>
__device__ uint32_t draw_kept(const Keep& keep, const TokenCounter& counter, const AttentionShape& shape,
                              const Rows& queries, int first_key) {
  const int64_t first = blockIdx.y * kMaxAttentionKeysWithDropout + first_key;
  constexpr int kAtOnce = 4;
  uint32_t bits = 0;
#pragma unroll
  for (int begin = 0; begin < Size::kTile / 8; begin += kAtOnce) {
    if (first_key + 8 * begin >= queries.length) break;
#pragma unroll
    for (int n = begin; n < begin + kAtOnce && n < Size::kTile / 8; ++n) {
      bits |= kept_of_quad(keep, counter, first / 4 + 2 * n + KeptRows::word()) << (4 * n);
    }
  }
  const int query = queries.begin + KeptRows::row();
  if (shape.kept != nullptr && query < queries.length) {
    kept_word<Size>(shape, queries.first_token + query, first_key, KeptRows::word()) =
        static_cast<KeptWord<Size>>(bits);
  }
  return bits;
}

// A word that draw_kept() drew; all bits where there is no dropout.
template <typename Size>
__device__ uint32_t load_kept(const Keep& keep, const AttentionShape& shape, const Rows& queries, int query,
                              int first_key, int word) {
  if (!keep.active) return 0xFFFFFFFFU;
  if (query >= queries.length) return 0;
  return kept_word<Size>(shape, queries.first_token + query, first_key, word);
}

// Words of a tile by rows of keys. A thread puts there word threadIdx.x % 2 of query threadIdx.x / 2.
template <typename Size>
class KeptTile {
 public:
  static constexpr int kWarps = Size::kTile / kRowsOfWarp;

  __device__ void put(uint32_t word) {
    const auto query = static_cast<int>(threadIdx.x) / 2;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      of_[threadIdx.x % 2][warp][query % 8 / 2][query / 8][query % 2] = static_cast<uint8_t>(word >> (8 * warp));
    }
  }

  // Of a fragment whose rows are the warp's keys and whose columns are queries.
  class Columns {
   public:
    __device__ explicit Columns(const KeptTile& tile) {
      const int key = row_of(0);  // and that + 8
      words_ =
          *reinterpret_cast<const Words*>(tile.of_[key / 4][first_row_of_warp() / kRowsOfWarp][lane_of_warp() % 4]);
#pragma unroll
      for (uint32_t& word : words_.at) word >>= key % 4;
    }
    __device__ bool has(int n, int i) const {
      return (words_.at[n / 2] >> (16 * (n % 2) + 8 * (i % 2) + 4 * (i / 2)) & 1U) != 0;
    }

   private:
    using Words = Chunk<uint32_t, Size::kTile / 16>;
    Words words_;
  };

 private:
  alignas(16) uint8_t of_[2][kWarps][4][Size::kTile / 8][2];
};

}  // namespace strake::kernels::cuda
