#include "strake/kernels/cuda/attention.cuh"

namespace strake::kernels::cuda {
namespace {

constexpr float kLn2 = 0.693147180559945309417F;

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
      // Of scores that are all -infinity the differences would be NaN, and so would what comes after them.
      const float base = new_largest == -INFINITY ? 0.0F : new_largest;
      const float shrink = exp2_approximately(largest[half] - base);
      largest[half] = new_largest;
      total[half] *= shrink;
#pragma unroll
      for (auto& at : scores.at) {
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          at[i] = exp2_approximately(fmaf(at[i], scale, -base));
          total[half] += at[i];
        }
      }
#pragma unroll
      for (auto& at : sums.at) at[2 * half] *= shrink, at[2 * half + 1] *= shrink;
    }
  }
};

template <typename Size, typename T = typename Size::T>
__global__ void __launch_bounds__(Size::kThreads, Size::kForwardBlocks)
    forward_kernel(AttentionForward<T> args, Keep keep, bool is_aligned) {
  using Products = WarpProducts<Size, T>;
  __shared__ Tile<Size> q, k[2], v[2];  // the next keys come while the present ones are used
  Rows rows;
  if (!find_rows<Size::kTile>(args.shape, blockIdx.x, rows)) return;
  const int64_t dim = Size::kWhole ? Size::kDim : args.shape.head_dim;
  const bool aligned = Size::kWhole || is_aligned;
  const int64_t first_token = rows.first_token + rows.begin;
  const int keys = keys_of<Size>(args.shape, rows);
  const TileLoader<Size> keys_there(head_of_block(args.k, args.qkv_stride, dim, aligned), rows);
  const TileLoader<Size> values_there(head_of_block(args.v, args.qkv_stride, dim, aligned), rows);
  const auto load_keys = [&](int begin) {
    keys_there.load(k[begin / Size::kTile % 2], begin);
    values_there.load(v[begin / Size::kTile % 2], begin);
    end_copies();
  };
  TileLoader<Size>(head_of_block(args.q, args.qkv_stride, dim, aligned), rows).load(q, rows.begin);
  load_keys(0);
  const bool has_word = rows.begin + KeptRows::row() < rows.length;
  const TokenCounter counter = counter_of(keep, first_token + (has_word ? KeptRows::row() : 0));
  OnlineSoftmax softmax{.scale = args.shape.scale * kLog2E};
  Fragment<Size::kDim> sums = {};
  for (int begin = 0; begin < keys; begin += Size::kTile) {
    const bool is_last = begin + Size::kTile >= keys;
    if (!is_last) load_keys(begin + Size::kTile);
    uint32_t word = 0;
    if (keep.active) word = draw_kept<Size>(keep, counter, args.shape, rows, begin);
    if (is_last) {
      wait_for_copies();
    } else {
      wait_for_copies<1>();
    }
    __syncthreads();
    const int place = begin / Size::kTile % 2;
    Fragment<Size::kTile> weights;
    Products::multiply(typename Products::Left(q), k[place], 0, dim, weights);
    hide_keys(args.shape, rows, begin, weights);
    softmax.take(weights, sums);
    if (keep.active) {
      const KeptRows kept(word);
      for_each(weights, [&](float& weight, int n, int i) { weight = kept.has(n, i) ? weight : 0.0F; });
    }
    Products::add(weights, v[place], 0, dim, sums);
    __syncthreads();  // before these keys' places are taken again
  }
  const float totals[2] = {sum_of_lanes(softmax.total[0]), sum_of_lanes(softmax.total[1])};
  store_rows(sums, {keep.scale / totals[0], keep.scale / totals[1]}, rows,
             head_of_block(args.out, args.out_stride, dim, aligned), q);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row_of_warp() + row_of(2 * half);
    if (column_of(0, 0) == 0 && rows.begin + row < rows.length) {
      args.lse[(first_token + row) * args.shape.num_heads + blockIdx.y] =
          fmaf(softmax.largest[half], kLn2, logf(totals[half]));
    }
  }
}

template <typename Size, typename T = typename Size::T>
int forward(const AttentionForward<T>& args, int64_t tokens, void* stream, bool aligned) {
  return launch(&forward_kernel<Size>, grid_of<Size::kTile>(args.shape, tokens), Size::kThreads, stream, args,
                keep_of(args.shape.dropout, args.shape.index), aligned);
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

#define STRAKE_INSTANTIATE(T) template int attention_forward(const AttentionForward<T>&, int64_t, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
