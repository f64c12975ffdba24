#include <algorithm>

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
namespace {

constexpr float kLn2 = 0.693147180559945309417F;

// Over the four lanes that have a row of a fragment.
__device__ float sum_of_lanes(float value) {
  value += __shfl_xor_sync(0xFFFFFFFFU, value, 1);
  return value + __shfl_xor_sync(0xFFFFFFFFU, value, 2);
}
__device__ float max_of_lanes(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 2));
}

// use(element, row of the tile, column), row_of() and column_of() telling which.
template <int kColumns, typename Use>
__device__ void for_each(Fragment<kColumns>& fragment, const Use& use) {
#pragma unroll
  for (int n = 0; n < Fragment<kColumns>::kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) use(fragment.at[n][i], first_row_of_warp() + row_of(i), column_of(n, i));
  }
}

// Scores of keys that a query of the tile does not see become those of probability 0.
template <typename Size>
__device__ void hide_keys(const AttentionShape& shape, const Rows& queries, int64_t first_key,
                          Fragment<Size::kTile>& scores) {
  const bool is_causal = shape.mask == AttentionMask::kCausal;
  const auto keys = static_cast<int>(std::min(queries.length - first_key, int64_t{Size::kTile}));
  const auto diagonal = static_cast<int>(std::min(queries.begin - first_key, int64_t{Size::kTile}));
  if (keys == Size::kTile && (!is_causal || diagonal == Size::kTile)) return;
  for_each(scores, [&](float& score, int query, int key) {
    if (key >= keys || (is_causal && key > query + diagonal)) score = -INFINITY;
  });
}

// How many keys some query of a tile sees.
template <typename Size>
__device__ int64_t keys_of(const AttentionShape& shape, const Rows& queries) {
  const int64_t last = queries.begin + Size::kTile;
  return shape.mask == AttentionMask::kCausal && last < queries.length ? last : queries.length;
}

template <typename Size>
__device__ float factor_of(const Kept<Size>& kept, const Keep& keep, int query, int key) {
  return (kept.of[query][key / kRowsOfWarp] >> (key % kRowsOfWarp) & 1) != 0 ? keep.scale : 0.0F;
}

// The softmax of a lane's two rows as far as their keys were seen. Every row sees the first key of the first tile.
struct OnlineSoftmax {
  float scale;                                // of scores, kLog2E in it
  float largest[2] = {-INFINITY, -INFINITY};  // of scaled scores
  float total[2] = {};                        // of the lane's columns: a part of the row's

  // Turns scores into weights, and shrinks sums of earlier weights to the new largest score.
  template <int kKeys, int kDim>
  __device__ void take(Fragment<kKeys>& scores, Fragment<kDim>& sums) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float tile_largest = -INFINITY;
#pragma unroll
      for (auto& at : scores.at) tile_largest = fmaxf(tile_largest, fmaxf(at[2 * half], at[2 * half + 1]));
      const float new_largest = fmaxf(largest[half], scale * max_of_lanes(tile_largest));
      const float shrink = exp2_approximately(largest[half] - new_largest);
      largest[half] = new_largest;
      total[half] *= shrink;
#pragma unroll
      for (auto& at : scores.at) {
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          at[i] = exp2_approximately(fmaf(at[i], scale, -new_largest));
          total[half] += at[i];
        }
      }
#pragma unroll
      for (auto& at : sums.at) at[2 * half] *= shrink, at[2 * half + 1] *= shrink;
    }
  }
};

// The block's rows of a head, as far as there are rows and elements.
template <int kDim, typename T>
__device__ void store_rows(const Fragment<kDim>& sums, const float (&factors)[2], const Rows& rows, const Head<T>& to) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row_of_warp() + row_of(2 * half);
    if (rows.begin + row >= rows.length) continue;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const int d = column_of(n, 0);
      const Pair<T> pair{
          {narrow<T>(sums.at[n][2 * half] * factors[half]), narrow<T>(sums.at[n][2 * half + 1] * factors[half])}};
      store_chunk(to.head + (rows.first_token + rows.begin + row) * to.stride + d, pair, to.dim - d, to.aligned);
    }
  }
}

template <typename Size, typename T = typename Size::T>
__global__ void __launch_bounds__(Size::kThreads, Size::kForwardBlocks)
    forward_kernel(AttentionForward<T> args, Keep keep, bool is_aligned) {
  __shared__ Tile<Size> q, k[2], v[2];  // the next keys come while the present ones are used
  __shared__ Kept<Size> kept;
  Rows rows;
  if (!find_rows<Size::kTile>(args.shape, blockIdx.x, rows)) return;
  const int64_t dim = Size::kWhole ? Size::kDim : args.shape.head_dim;
  const bool aligned = Size::kWhole || is_aligned;
  const int64_t head = blockIdx.y;
  const int64_t keys = keys_of<Size>(args.shape, rows);
  const auto load_keys = [&](int64_t begin) {
    const int place = begin / Size::kTile % 2;
    load_tile<Size>(k[place], head_of_block(args.k, args.qkv_stride, dim, aligned), rows, begin);
    load_tile<Size>(v[place], head_of_block(args.v, args.qkv_stride, dim, aligned), rows, begin);
    end_copies();
  };
  load_tile<Size>(q, head_of_block(args.q, args.qkv_stride, dim, aligned), rows, rows.begin);
  load_keys(0);
  OnlineSoftmax softmax{.scale = args.shape.scale * kLog2E};
  Fragment<Size::kDim> sums = {};
  for (int64_t begin = 0; begin < keys; begin += Size::kTile) {
    const bool is_last = begin + Size::kTile >= keys;
    if (!is_last) load_keys(begin + Size::kTile);
    draw_kept(kept, keep, args.shape, rows, rows.begin, begin);
    if (is_last) {
      wait_for_copies();
    } else {
      wait_for_copies<1>();
    }
    __syncthreads();
    const int place = begin / Size::kTile % 2;
    Fragment<Size::kTile> weights;
    WarpProducts<Size, T>::multiply(q, k[place], dim, weights);
    hide_keys<Size>(args.shape, rows, begin, weights);
    softmax.take(weights, sums);
    if (keep.active) {
      for_each(weights, [&](float& weight, int query, int key) { weight *= factor_of(kept, keep, query, key); });
    }
    WarpProducts<Size, T>::add(weights, v[place], dim, sums);
    __syncthreads();  // before these keys' places are taken again
  }
  const float totals[2] = {sum_of_lanes(softmax.total[0]), sum_of_lanes(softmax.total[1])};
  const int64_t first_token = rows.first_token + rows.begin;
  store_rows(sums, {1.0F / totals[0], 1.0F / totals[1]}, rows, head_of_block(args.out, args.out_stride, dim, aligned));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row_of_warp() + row_of(2 * half);
    if (column_of(0, 0) == 0 && rows.begin + row < rows.length) {
      args.lse[(first_token + row) * args.shape.num_heads + head] =
          fmaf(softmax.largest[half], kLn2, logf(totals[half]));
    }
  }
}

// rowsum(dout out) of row `row` of the tile `dout`, shared among the lanes of the row; 0 behind the sequence.
template <typename Size, typename T>
__device__ float row_dot_of(const Tile<Size>& dout, const Head<const T>& out, const Rows& rows, int row) {
  constexpr int kCount = Chunk<T>::kCount;
  if (rows.begin + row >= rows.length) return 0.0F;
  float sum = 0;
  for (int d = lane_of_warp() % 4 * kCount; d < out.dim; d += 4 * kCount) {
    const T* there = out.head + (rows.first_token + rows.begin + row) * out.stride + d;
    const Chunk<T> chunk = load_chunk<Chunk<T>>(there, out.dim - d, out.aligned);
    for (int i = 0; i < kCount; ++i) sum = fmaf(wide(dout.at[row][d + i]), wide(chunk.at[i]), sum);
  }
  return sum;
}

// dq of a tile of queries, and row_dots = rowsum(dout out).
template <typename Size, typename T = typename Size::T>
__global__ void __launch_bounds__(Size::kThreads, Size::kQueryBlocks)
    query_gradient_kernel(AttentionBackward<T> args, Keep keep, float* row_dots, bool is_aligned) {
  __shared__ Tile<Size> q, k, v, dout;
  __shared__ Kept<Size> kept;
  Rows rows;
  if (!find_rows<Size::kTile>(args.shape, blockIdx.x, rows)) return;
  const int64_t dim = Size::kWhole ? Size::kDim : args.shape.head_dim;
  const bool aligned = Size::kWhole || is_aligned;
  const int64_t head = blockIdx.y;
  const int64_t keys = keys_of<Size>(args.shape, rows);
  load_tile<Size>(q, head_of_block(args.q, args.qkv_stride, dim, aligned), rows, rows.begin);
  load_tile<Size>(dout, head_of_block(args.dout, args.out_stride, dim, aligned), rows, rows.begin);
  float row_dot[2];
  float lse[2];  // of powers of two
  Fragment<Size::kDim> dq = {};
  for (int64_t begin = 0; begin < keys; begin += Size::kTile) {
    if (begin > 0) __syncthreads();
    load_tile<Size>(k, head_of_block(args.k, args.qkv_stride, dim, aligned), rows, begin);
    load_tile<Size>(v, head_of_block(args.v, args.qkv_stride, dim, aligned), rows, begin);
    end_copies();
    load_kept(kept, keep, args.shape, rows, rows.begin, begin);
    wait_for_copies();
    __syncthreads();
    if (begin == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row_of_warp() + row_of(2 * half);
        const int64_t at = (rows.first_token + rows.begin + row) * args.shape.num_heads + head;
        row_dot[half] =
            sum_of_lanes(row_dot_of<Size>(dout, head_of_block(args.out, args.out_stride, dim, aligned), rows, row));
        const bool is_there = rows.begin + row < rows.length;
        lse[half] = is_there ? args.lse[at] * kLog2E : INFINITY;
        if (is_there && column_of(0, 0) == 0) row_dots[at] = row_dot[half];
      }
    }
    Fragment<Size::kTile> scores, gradient;
    WarpProducts<Size, T>::multiply(q, k, dim, scores);
    WarpProducts<Size, T>::multiply(dout, v, dim, gradient);
    hide_keys<Size>(args.shape, rows, begin, scores);
    if (keep.active) {
      for_each(gradient, [&](float& value, int query, int key) { value *= factor_of(kept, keep, query, key); });
    }
#pragma unroll
    for (int n = 0; n < Size::kTile / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float probability = exp2_approximately(fmaf(scores.at[n][i], args.shape.scale * kLog2E, -lse[i / 2]));
        gradient.at[n][i] = probability * (gradient.at[n][i] - row_dot[i / 2]);
      }
    }
    WarpProducts<Size, T>::add(gradient, k, dim, dq);
  }
  store_rows(dq, {args.shape.scale, args.shape.scale}, rows, head_of_block(args.dq, args.grad_stride, dim, aligned));
}

// dk and dv of a tile of keys. Fragments have its keys as rows and queries as columns.
template <typename Size, typename T = typename Size::T>
__global__ void __launch_bounds__(Size::kThreads, Size::kKeyBlocks)
    key_gradient_kernel(AttentionBackward<T> args, Keep keep, const float* row_dots, bool is_aligned) {
  __shared__ Tile<Size> q, k, v, dout;
  __shared__ Kept<Size> kept;
  __shared__ float lse[Size::kTile];  // of powers of two
  __shared__ float dots[Size::kTile];
  Rows rows;
  if (!find_rows<Size::kTile>(args.shape, blockIdx.x, rows)) return;
  const int64_t dim = Size::kWhole ? Size::kDim : args.shape.head_dim;
  const bool aligned = Size::kWhole || is_aligned;
  const int64_t head = blockIdx.y;
  const bool is_causal = args.shape.mask == AttentionMask::kCausal;
  load_tile<Size>(k, head_of_block(args.k, args.qkv_stride, dim, aligned), rows, rows.begin);
  load_tile<Size>(v, head_of_block(args.v, args.qkv_stride, dim, aligned), rows, rows.begin);
  Fragment<Size::kDim> dk = {};
  Fragment<Size::kDim> dv = {};
  const int64_t first_query = is_causal ? rows.begin : 0;
  for (int64_t begin = first_query; begin < rows.length; begin += Size::kTile) {
    if (begin > first_query) __syncthreads();
    load_tile<Size>(q, head_of_block(args.q, args.qkv_stride, dim, aligned), rows, begin);
    load_tile<Size>(dout, head_of_block(args.dout, args.out_stride, dim, aligned), rows, begin);
    end_copies();
    load_kept(kept, keep, args.shape, rows, begin, rows.begin);
    for (int query = threadIdx.x; query < Size::kTile; query += Size::kThreads) {
      const bool is_there = begin + query < rows.length;
      const int64_t at = (rows.first_token + begin + query) * args.shape.num_heads + head;
      lse[query] = is_there ? args.lse[at] * kLog2E : INFINITY;
      dots[query] = is_there ? row_dots[at] : 0.0F;
    }
    wait_for_copies();
    __syncthreads();
    Fragment<Size::kTile> probabilities, gradient;
    WarpProducts<Size, T>::multiply(k, q, dim, probabilities);
    WarpProducts<Size, T>::multiply(v, dout, dim, gradient);
    if (is_causal && begin == rows.begin) {
      for_each(probabilities, [](float& score, int key, int query) { score = key > query ? -INFINITY : score; });
    }
#pragma unroll
    for (int n = 0; n < Size::kTile / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = column_of(n, i);
        float& probability = probabilities.at[n][i];
        const float factor = keep.active ? factor_of(kept, keep, query, first_row_of_warp() + row_of(i)) : 1.0F;
        probability = exp2_approximately(fmaf(probability, args.shape.scale * kLog2E, -lse[query]));
        gradient.at[n][i] = probability * (factor * gradient.at[n][i] - dots[query]);
        probability *= factor;
      }
    }
    WarpProducts<Size, T>::add(probabilities, dout, dim, dv);
    WarpProducts<Size, T>::add(gradient, q, dim, dk);
  }
  store_rows(dk, {args.shape.scale, args.shape.scale}, rows, head_of_block(args.dk, args.grad_stride, dim, aligned));
  store_rows(dv, {1.0F, 1.0F}, rows, head_of_block(args.dv, args.grad_stride, dim, aligned));
}

template <typename Size, typename T = typename Size::T>
int forward(const AttentionForward<T>& args, int64_t tokens, void* stream, bool aligned) {
  return launch(&forward_kernel<Size>, grid_of<Size::kTile>(args.shape, tokens), Size::kThreads, stream, args,
                keep_of(args.shape.dropout, args.shape.index), aligned);
}

template <typename Size, typename T = typename Size::T>
int backward(const AttentionBackward<T>& args, int64_t tokens, void* stream, bool aligned) {
  const Workspace<float> row_dots(tokens * args.shape.num_heads, stream);
  if (row_dots.error() != 0) return row_dots.error();
  const Keep keep = keep_of(args.shape.dropout, args.shape.index);
  const Grid grid = grid_of<Size::kTile>(args.shape, tokens);
  const int error =
      launch(&query_gradient_kernel<Size>, grid, Size::kThreads, stream, args, keep, row_dots.data(), aligned);
  if (error != 0) return error;
  return launch(&key_gradient_kernel<Size>, grid, Size::kThreads, stream, args, keep, row_dots.data(), aligned);
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

}  // namespace

template <typename T>
int attention_forward(const AttentionForward<T>& args, int64_t tokens, void* stream) {
  if (tokens == 0) return 0;
  const int64_t dim = args.shape.head_dim;
  const bool aligned = are_aligned<Chunk<T>>({dim, args.qkv_stride, args.out_stride}, args.q, args.k, args.v, args.out);
  return with_tiling<T>(dim, aligned,
                        [&]<typename Size>(Size) { return forward<Size>(args, tokens, stream, aligned); });
}

template <typename T>
int attention_backward(const AttentionBackward<T>& args, int64_t tokens, void* stream) {
  if (tokens == 0) return 0;
  const int64_t dim = args.shape.head_dim;
  const bool aligned = are_aligned<Chunk<T>>({dim, args.qkv_stride, args.out_stride, args.grad_stride}, args.q, args.k,
                                             args.v, args.out, args.dout, args.dq, args.dk, args.dv);
  return with_tiling<T>(dim, aligned,
                        [&]<typename Size>(Size) { return backward<Size>(args, tokens, stream, aligned); });
}

#define STRAKE_INSTANTIATE(T)                                                 \
  template int attention_forward(const AttentionForward<T>&, int64_t, void*); \
  template int attention_backward(const AttentionBackward<T>&, int64_t, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
