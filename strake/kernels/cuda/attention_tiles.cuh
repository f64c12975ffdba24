#pragma once

#include "strake/kernels/attention.h"
#include "strake/kernels/cuda/device.cuh"
#include "tensor_core.cuh"

// Tiles of a head's rows in shared memory, and which rows a block of attention has.
namespace strake::kernels::cuda {

inline constexpr int kRowsOfWarp = 16;  // those of a tensor core's product

inline constexpr int kNarrowDim = 64;

// Heads of exactly kDim elements whose rows lie on 16 bytes, for which much is known when this is compiled, or of up to
// as many.
enum class Heads { kWhole, kAny };

// Five tiles take at most 45 KiB, of 48 that every device lets a block have. Each warp has kRowsOfWarp rows of a tile,
// so that a block has two threads for every row.
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
  static constexpr int kQueryColumns = kTile < 32 ? kTile : 32;  // keys whose scores are there at once for dq; likewise
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
  int length;           // of the sequence
  int begin;
};

// Sequence s owns places [offsets[s] / kTile + s, offsets[s + 1] / kTile + s + 1), which are at least as many as it has
// tiles: no list of tiles is needed. False for a place to spare.
template <int kTile>
__device__ bool find_rows(const AttentionShape& shape, int64_t place, Rows& rows) {
  // The last sequence that begins at or before the place. The lanes of a warp look at once, as a look is a wait for
  // memory: of few sequences, each at kOwn and their ends.
  constexpr int kOwn = 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int64_t low = 0;
  int64_t count = shape.num_sequences;
  while (count > kOwn * kWarp) {
    const int64_t step = (count + kWarp - 1) / kWarp;
    const int64_t own = low + lane * step;
    const bool begins = lane * step < count && shape.offsets[own] / kTile + own <= place;
    const int64_t last = warp_sum(begins ? 1 : 0) - 1;  // lane 0's does: those before are monotonous
    count = step < count - last * step ? step : count - last * step;
    low += last * step;
  }
  int32_t ends[kOwn + 1];  // of the lane's sequences, after the first one's begin
#pragma unroll
  for (int i = 0; i <= kOwn; ++i) {
    const int64_t own = low + lane * kOwn + i;
    ends[i] = shape.offsets[own < low + count ? own : low + count];
  }
  int begun = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int64_t own = lane * kOwn + i;
    begun += own < count && ends[i] / kTile + low + own <= place ? 1 : 0;
  }
  const int last = warp_sum(begun) - 1;
  int32_t begin = 0;
  int32_t end = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int32_t of_lane = __shfl_sync(0xFFFFFFFFU, ends[i], last / kOwn);
    const int32_t next = __shfl_sync(0xFFFFFFFFU, ends[i + 1], last / kOwn);
    if (i == last % kOwn) begin = of_lane, end = next;
  }
  rows.first_token = begin;
  rows.length = end - begin;
  rows.begin = static_cast<int>(place - (begin / kTile + low + last)) * kTile;
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

// Brings tiles of a head's rows to shared memory: what a thread knows of its chunks, which are those of one column.
template <typename Size>
class TileLoader {
 public:
  using T = typename Size::T;

  __device__ TileLoader(const Head<const T>& from, const Rows& rows)
      : from_(from),
        rows_left_(rows.length - row()),
        own_(from.head + (rows.first_token + row()) * from.stride + d()) {}

  // Rows [begin, begin + kTile) of the sequence; zeros behind the sequence and behind the head. They are there when the
  // block's threads have waited for their copies and met.
  __device__ void load(Tile<Size>& tile, int begin) const {
#pragma unroll
    for (int i = 0; i < Size::kTile / kRows; ++i) {
      const int first = begin + i * kRows;
      const int64_t count = first < rows_left_ ? from_.dim - d() : 0;
      T* there = &tile.at[row() + i * kRows][d()];
      const T* source = own_ + first * from_.stride;
      if (from_.aligned) {
        copy_beside(there, source, count > 0);
      } else {
        *reinterpret_cast<Part*>(there) = load_chunk<Part>(source, count, false);
      }
    }
  }

 private:
  using Part = Chunk<T>;
  static constexpr int kChunks = Size::kDim / Part::kCount;
  static constexpr int kRows = Size::kThreads / kChunks;  // that the block's threads bring at once
  static_assert(Size::kThreads % kChunks == 0 && Size::kTile % kRows == 0);

  static __device__ int row() { return static_cast<int>(threadIdx.x) / kChunks; }
  static __device__ int d() { return static_cast<int>(threadIdx.x) % kChunks * Part::kCount; }

  Head<const T> from_;
  int rows_left_;
  const T* own_;
};

}  // namespace strake::kernels::cuda
