#pragma once

#include "strake/kernels/cuda/attention_kept.cuh"
#include "strake/kernels/cuda/attention_tiles.cuh"
#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"
#include "strake/kernels/cuda/warp_products.cuh"

// Attention over tiles of queries and keys that lie in shared memory, softmax taken online (Dao et al.,
// "FlashAttention", NeurIPS 2022; Dao, "FlashAttention-2", arXiv:2307.08691). Sums, softmax and its gradient are fp32;
// of 16-bit tensors, products are the tensor cores', for which probabilities and their gradients are rounded once.
//
// A block has a tile of rows of one head of one sequence and goes through the tiles of the other side; a warp has 16 of
// its rows. The backward pass is two kernels, one for dq by rows of queries and one for dk and dv by rows of keys, both
// of which compute the probabilities again: more work than adding dq up across blocks, but every sum has a fixed order.
//
// The scale of scores enters gradients at the end, where no rounding to 16 bits follows but the result's own.
//
// Exponentials are powers of two: exp(scale s - lse) = exp2(kLog2E scale s - kLog2E lse).
namespace strake::kernels::cuda {

// Over the four lanes that have a row of a fragment.
__device__ inline float sum_of_lanes(float value) {
  value += __shfl_xor_sync(0xFFFFFFFFU, value, 1);
  return value + __shfl_xor_sync(0xFFFFFFFFU, value, 2);
}
__device__ inline float max_of_lanes(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 2));
}

// use(element, n, i): row_of(i) and column_of(n, i) tell which it is.
template <int kColumns, typename Use>
__device__ void for_each(Fragment<kColumns>& fragment, const Use& use) {
#pragma unroll
  for (int n = 0; n < Fragment<kColumns>::kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) use(fragment.at[n][i], n, i);
  }
}

// Scores of keys that a query of the tile does not see become those of probability 0.
template <int kKeys>
__device__ void hide_keys(const AttentionShape& shape, const Rows& queries, int first_key, Fragment<kKeys>& scores) {
  const bool is_causal = shape.mask == AttentionMask::kCausal;
  const int keys = queries.length - first_key;
  const int diagonal = queries.begin - first_key;
  if (keys >= kKeys && (!is_causal || diagonal >= kKeys)) return;
  for_each(scores, [&](float& score, int n, int i) {
    const int key = column_of(n, i);
    if (key >= keys || (is_causal && key > first_row_of_warp() + row_of(i) + diagonal)) score = -INFINITY;
  });
}

// How many keys some query of a tile sees.
template <typename Size>
__device__ int keys_of(const AttentionShape& shape, const Rows& queries) {
  const int left = queries.length - queries.begin;
  return shape.mask == AttentionMask::kCausal && left > Size::kTile ? queries.begin + Size::kTile : queries.length;
}

// The warp's rows of a head, as far as there are rows and elements: by way of a tile that no warp uses any more, as
// whole chunks beside each other.
template <typename Size, typename T = typename Size::T>
__device__ void store_rows(const Fragment<Size::kDim>& sums, const float (&factors)[2], const Rows& rows,
                           const Head<T>& to, Tile<Size>& tile) {
#pragma unroll
  for (int n = 0; n < Size::kDim / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<Pair<T>*>(&tile.at[first_row_of_warp() + row_of(2 * half)][column_of(n, 0)]) = {
          {narrow<T>(sums.at[n][2 * half] * factors[half]), narrow<T>(sums.at[n][2 * half + 1] * factors[half])}};
    }
  }
  __syncwarp();
  constexpr int kChunks = Size::kDim / Chunk<T>::kCount;
#pragma unroll
  for (int i = lane_of_warp(); i < kRowsOfWarp * kChunks; i += kWarp) {
    const int row = first_row_of_warp() + i / kChunks;
    const int d = i % kChunks * Chunk<T>::kCount;
    if (rows.begin + row >= rows.length) continue;
    store_chunk(to.head + (rows.first_token + rows.begin + row) * to.stride + d,
                *reinterpret_cast<const Chunk<T>*>(&tile.at[row][d]), to.dim - d, to.aligned);
  }
}

// use(Tiling) of the heads.
template <typename T, typename Use>
int with_tiling(int64_t dim, bool aligned, const Use& use) {
  if (dim == kNarrowDim && aligned) return use(Tiling<T, kNarrowDim, Heads::kWhole>());
  if (dim <= kNarrowDim) return use(Tiling<T, kNarrowDim, Heads::kAny>());
  if (dim == kMaxHeadDim && aligned) return use(Tiling<T, kMaxHeadDim, Heads::kWhole>());
  if (dim <= kMaxHeadDim) return use(Tiling<T, kMaxHeadDim, Heads::kAny>());
  return static_cast<int>(cudaErrorInvalidValue);
}

}  // namespace strake::kernels::cuda
