#pragma once

#include "strake/kernels/attention.h"
#include "strake/kernels/cuda/device.cuh"

// Tiles of a head's rows in shared memory, and which rows a block of attention has.
namespace strake::kernels::cuda {

inline constexpr int kRowsOfWarp = 16;  // those of a tensor core's product

inline constexpr int kNarrowDim = 64;

// Heads of exactly kDim elements whose rows lie on 16 bytes, for which much is known when this is compiled, or of up to
// as many.
enum class Heads { kWhole, kAny };

// Four tiles take at most 37 KiB, of 48 that every device lets a block have. Each warp has kRowsOfWarp rows of a tile.
template <typename T_, int kDim_, Heads kHeads>
struct Tiling {
  using T = T_;
  static constexpr int kDim = kDim_;
  static constexpr bool kWhole = kHeads == Heads::kWhole;
  static constexpr int kTile = 8192 / static_cast<int>(kDim * sizeof(T));
  static constexpr int kThreads = kTile / kRowsOfWarp * kWarp;
  // Of the queries' gradient on a multiprocessor, at least: registers allow them with next to no spills.
  static constexpr int kBlocks = kDim <= kNarrowDim ? 384 / kThreads : 1;
};

// A chunk more than kDim to a row moves each row four banks on, so that eight rows' chunks meet no bank twice.
template <typename Size>
struct alignas(16) Tile {
  using T = typename Size::T;
  T at[Size::kTile][Size::kDim + Chunk<T>::kCount];
};

// Which rows a block has: [begin, begin + kTile) of a sequence, as far as it has them.
struct Rows {
  int64_t first_token;  // of the sequence
  int64_t length;       // of the sequence
  int64_t begin;
};

// Sequence s owns places [offsets[s] / kTile + s, offsets[s + 1] / kTile + s + 1), which are at least as many as it has
// tiles: no list of tiles is needed. False for a place to spare.
template <int kTile>
__device__ bool find_rows(const AttentionShape& shape, int64_t place, Rows& rows) {
  int64_t low = 0;
  int64_t high = shape.num_sequences - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (shape.offsets[middle] / kTile + middle <= place) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  rows.first_token = shape.offsets[low];
  rows.length = shape.offsets[low + 1] - rows.first_token;
  rows.begin = (place - (rows.first_token / kTile + low)) * kTile;
  return rows.begin < rows.length;
}
template <int kTile>
Grid grid_of(const AttentionShape& shape, int64_t tokens) {
  return {tokens / kTile + shape.num_sequences, shape.num_heads};
}

// Of a tensor of T or const T: element d of token t is at head[t * stride + d].
template <typename T>
struct Head {
  T* head;
  int64_t stride;
  int64_t dim;
  bool aligned;
};

// A block's own, of a tensor whose tokens begin at first + t * stride.
template <typename T>
__device__ Head<T> head_of_block(T* first, int64_t stride, int64_t dim, bool aligned) {
  return {first + blockIdx.y * dim, stride, dim, aligned};
}

// Rows [begin, begin + kTile) of a sequence; zeros behind the sequence and behind the head.
template <typename Size>
__device__ void load_tile(Tile<Size>& tile, const Head<const typename Size::T>& from, const Rows& rows, int64_t begin) {
  using Part = Chunk<typename Size::T>;
  constexpr int kChunks = Size::kDim / Part::kCount;
  static_assert(Size::kTile * kChunks % Size::kThreads == 0);
#pragma unroll 4
  for (int i = 0; i < Size::kTile * kChunks / Size::kThreads; ++i) {
    const int n = i * Size::kThreads + static_cast<int>(threadIdx.x);
    const int row = n / kChunks;
    const int d = n % kChunks * Part::kCount;
    const int64_t count = begin + row < rows.length ? from.dim - d : 0;
    const auto* there = from.head + (rows.first_token + begin + row) * from.stride + d;
    *reinterpret_cast<Part*>(&tile.at[row][d]) = load_chunk<Part>(there, count, from.aligned);
  }
}

// Which probabilities of a tile of queries and keys dropout keeps: bit k % 16 of of[q][k / 16].
template <typename Size>
struct Kept {
  uint16_t of[Size::kTile][Size::kTile / kRowsOfWarp];
};

template <typename Size>
__device__ void draw_kept(Kept<Size>& kept, const Keep& keep, const Rows& rows, int64_t first_query,
                          int64_t first_key) {
  if (!keep.active) return;
  constexpr int kWords = Size::kTile / kRowsOfWarp;
  const int64_t first = blockIdx.y * kMaxAttentionKeysWithDropout + first_key;
  for (int n = threadIdx.x; n < Size::kTile * kWords; n += Size::kThreads) {
    const int query = n / kWords;
    const int word = n % kWords;
    if (first_query + query >= rows.length || first_key + kRowsOfWarp * word >= rows.length) continue;
    const TokenCounter counter = counter_of(keep, rows.first_token + first_query + query);
    uint32_t bits = 0;
#pragma unroll
    for (int quad = 0; quad < 4; ++quad) {
      bits |= kept_of_quad(keep, counter, first / 4 + 4 * word + quad) << (4 * quad);
    }
    kept.of[query][word] = static_cast<uint16_t>(bits);
  }
}

}  // namespace strake::kernels::cuda
