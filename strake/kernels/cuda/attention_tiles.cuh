#pragma once

#include "strake/kernels/attention.h"
#include "strake/kernels/cuda/device.cuh"
#include "tensor_core.cuh"

// Tiles of a head's rows in shared memory, and which rows a block of attention has.
namespace strake::kernels::cuda {

inline constexpr int kRowsOfWarp = 16;  // those of a tensor core's product
static_assert(kRowsOfWarp == kKeysOfKeptWord);

inline constexpr int kNarrowDim = 64;

// Heads of exactly kDim elements whose rows lie on 16 bytes, for which much is known when this is compiled, or of up to
// as many.
enum class Heads { kWhole, kAny };

// Five tiles take at most 45 KiB, of 48 that every device lets a block have. Each warp has kRowsOfWarp rows of a tile.
template <typename T_, int kDim_, Heads kHeads>
struct Tiling {
  using T = T_;
  static constexpr int kDim = kDim_;
  static constexpr bool kWhole = kHeads == Heads::kWhole;
  static constexpr int kTile = 8192 / static_cast<int>(kDim * sizeof(T));
  static constexpr int kThreads = kTile / kRowsOfWarp * kWarp;
  // Of a multiprocessor, which bounds a kernel's registers: of three choices the fastest on an H100.
  static constexpr bool kIsNarrow = kDim <= kNarrowDim;
  static constexpr int kForwardBlocks = kIsNarrow ? 384 / kThreads : 1;
  static constexpr int kQueryBlocks = kIsNarrow ? 384 / kThreads : 1;
  static constexpr int kKeyBlocks = kIsNarrow ? 256 / kThreads : 1;
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
  // The last sequence that begins at or before the place. The lanes of a warp look at once, as a look is a wait for
  // memory.
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int64_t low = 0;
  for (int64_t count = shape.num_sequences; count > 1;) {
    const int64_t step = (count + kWarp - 1) / kWarp;
    const int64_t own = low + lane * step;
    const bool begins = lane * step < count && shape.offsets[own] / kTile + own <= place;
    const int64_t last = warp_sum(begins ? 1 : 0) - 1;  // lane 0's does: those before are monotonous
    count = step < count - last * step ? step : count - last * step;
    low += last * step;
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

// Rows [begin, begin + kTile) of a sequence; zeros behind the sequence and behind the head. They are there when the
// block's threads have waited for their copies and met.
template <typename Size>
__device__ void load_tile(Tile<Size>& tile, const Head<const typename Size::T>& from, const Rows& rows, int64_t begin) {
  using Part = Chunk<typename Size::T>;
  constexpr int kChunks = Size::kDim / Part::kCount;
  static_assert(Size::kTile * kChunks % Size::kThreads == 0);
#pragma unroll
  for (int i = 0; i < Size::kTile * kChunks / Size::kThreads; ++i) {
    const int n = i * Size::kThreads + static_cast<int>(threadIdx.x);
    const int row = n / kChunks;
    const int d = n % kChunks * Part::kCount;
    const int64_t count = begin + row < rows.length ? from.dim - d : 0;
    const auto* there = from.head + (count > 0 ? (rows.first_token + begin + row) * from.stride + d : 0);
    if (from.aligned) {
      copy_beside(&tile.at[row][d], there, count > 0);
    } else {
      *reinterpret_cast<Part*>(&tile.at[row][d]) = load_chunk<Part>(there, count, false);
    }
  }
}

// Which probabilities of a tile of queries and keys dropout keeps: bit k % 16 of of[q][k / 16].
template <typename Size>
struct Kept {
  uint16_t of[Size::kTile][Size::kTile / kRowsOfWarp];
};

// use(query, word of its keys) for the words of a tile that have keys, each by one thread.
template <typename Size, typename Use>
__device__ void for_each_word(const Rows& rows, int64_t first_query, int64_t first_key, const Use& use) {
  constexpr int kWords = Size::kTile / kRowsOfWarp;
  for (int n = threadIdx.x; n < Size::kTile * kWords; n += Size::kThreads) {
    const int query = n / kWords;
    const int word = n % kWords;
    if (first_query + query < rows.length && first_key + kRowsOfWarp * word < rows.length) use(query, word);
  }
}

__device__ inline uint16_t& kept_word(const AttentionShape& shape, int64_t token, int64_t first_key) {
  return shape.kept[(blockIdx.y * shape.num_tokens + token) * shape.kept_words + first_key / kKeysOfKeptWord];
}

// Of a tile that begins with these tokens of the sequence; kept for the backward pass if that is wanted.
template <typename Size>
__device__ void draw_kept(Kept<Size>& kept, const Keep& keep, const AttentionShape& shape, const Rows& rows,
                          int64_t first_query, int64_t first_key) {
  if (!keep.active) return;
  const int64_t first = blockIdx.y * kMaxAttentionKeysWithDropout + first_key;
  for_each_word<Size>(rows, first_query, first_key, [&](int query, int word) {
    const int64_t token = rows.first_token + first_query + query;
    const TokenCounter counter = counter_of(keep, token);
    uint32_t bits = 0;
#pragma unroll
    for (int quad = 0; quad < 4; ++quad) {
      bits |= kept_of_quad(keep, counter, first / 4 + 4 * word + quad) << (4 * quad);
    }
    kept.of[query][word] = static_cast<uint16_t>(bits);
    if (shape.kept != nullptr) kept_word(shape, token, first_key + kRowsOfWarp * word) = kept.of[query][word];
  });
}

// What draw_kept() kept.
template <typename Size>
__device__ void load_kept(Kept<Size>& kept, const Keep& keep, const AttentionShape& shape, const Rows& rows,
                          int64_t first_query, int64_t first_key) {
  if (!keep.active) return;
  for_each_word<Size>(rows, first_query, first_key, [&](int query, int word) {
    kept.of[query][word] = kept_word(shape, rows.first_token + first_query + query, first_key + kRowsOfWarp * word);
  });
}

}  // namespace strake::kernels::cuda
