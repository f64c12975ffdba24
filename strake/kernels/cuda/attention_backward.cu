#include "strake/kernels/cuda/attention.cuh"

namespace strake::kernels::cuda {
namespace {

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

// A block's four tiles in the backward pass: those of its own rows, and two of the rows of the other side through which
// it goes. Where a warp holds its own rows in registers, the next two come to their places while the present ones are
// used.
template <typename Size>
class BackwardTiles {
 public:
  using T = typename Size::T;
  using Loader = TileLoader<Size>;

  __device__ BackwardTiles(Tile<Size> (&places)[4], const Loader& first, const Loader& second)
      : places_(places), first_(first), second_(second) {}

  // The block's own rows, and the first ones of the other side; both are there when this returns.
  __device__ void load(const Loader& own_first, const Loader& own_second, int own, int begin) {
    own_first.load(places_[2], own);
    own_second.load(places_[3], own);
    load_others(begin);
    wait_for_copies();
    __syncthreads();
  }
  __device__ const Tile<Size>& own_first() const { return places_[2]; }
  __device__ const Tile<Size>& own_second() const { return places_[3]; }

  // use(begin, tile, tile) of the other side's rows [begin, end). stage(begin) is called before: what it writes to
  // shared memory is there for use().
  template <typename Stage, typename Use>
  __device__ void for_each(int begin, int end, const Stage& stage, const Use& use) {
    for (; begin < end; begin += Size::kTile) {
      __syncthreads();  // before places are taken again
      const bool is_last = begin + Size::kTile >= end;
      const int place = place_;
      if (kHoldsRows && !is_last) {
        place_ ^= 2;
        load_others(begin + Size::kTile);
      }
      stage(begin);
      if (kHoldsRows && !is_last) {
        wait_for_copies<1>();
      } else {
        wait_for_copies();
      }
      __syncthreads();
      use(begin, places_[place], places_[place + 1]);
      if (!kHoldsRows && !is_last) {
        __syncthreads();
        load_others(begin + Size::kTile);
      }
    }
  }

 private:
  static constexpr bool kHoldsRows = WarpProducts<Size, T>::kHoldsRows;

  __device__ void load_others(int begin) {
    first_.load(places_[place_], begin);
    second_.load(places_[place_ + 1], begin);
    end_copies();
  }

  Tile<Size> (&places_)[4];
  Loader first_, second_;
  int place_ = 0;
};

// dq of a tile of queries, and row_dots = rowsum(dout out) / keep.scale.
template <typename Size, typename T = typename Size::T>
__global__ void __launch_bounds__(Size::kThreads, Size::kQueryBlocks)
    query_gradient_kernel(AttentionBackward<T> args, Keep keep, float* row_dots, bool is_aligned) {
  using Products = WarpProducts<Size, T>;
  using Loader = TileLoader<Size>;
  __shared__ Tile<Size> places[4];
  Rows rows;
  if (!find_rows<Size::kTile>(args.shape, blockIdx.x, rows)) return;
  const int64_t dim = Size::kWhole ? Size::kDim : args.shape.head_dim;
  const bool aligned = Size::kWhole || is_aligned;
  BackwardTiles<Size> tiles(places, Loader(head_of_block(args.k, args.qkv_stride, dim, aligned), rows),
                            Loader(head_of_block(args.v, args.qkv_stride, dim, aligned), rows));
  tiles.load(Loader(head_of_block(args.q, args.qkv_stride, dim, aligned), rows),
             Loader(head_of_block(args.dout, args.out_stride, dim, aligned), rows), rows.begin, 0);
  const typename Products::Left q(tiles.own_first());
  const typename Products::Left dout(tiles.own_second());
  float row_dot[2];
  float lse[2];  // of powers of two
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row_of_warp() + row_of(2 * half);
    const int64_t at = (rows.first_token + rows.begin + row) * args.shape.num_heads + blockIdx.y;
    row_dot[half] = sum_of_lanes(row_dot_of<Size>(tiles.own_second(),
                                                  head_of_block(args.out, args.out_stride, dim, aligned), rows, row)) /
                    keep.scale;
    const bool is_there = rows.begin + row < rows.length;
    lse[half] = is_there ? args.lse[at] * kLog2E : INFINITY;
    if (is_there && column_of(0, 0) == 0) row_dots[at] = row_dot[half];
  }
  const auto load_word = [&](int begin) {
    return load_kept<Size>(keep, args.shape, rows, rows.begin + KeptRows::row(), begin, KeptRows::word());
  };
  const int keys = keys_of<Size>(args.shape, rows);
  uint32_t word = 0;
  uint32_t next_word = load_word(0);
  Fragment<Size::kDim> dq = {};
  const auto stage = [&](int begin) {
    word = next_word;
    if (begin + Size::kTile < keys) next_word = load_word(begin + Size::kTile);
  };
  tiles.for_each(0, keys, stage, [&](int begin, const Tile<Size>& k, const Tile<Size>& v) {
    const KeptRows kept(word);
#pragma unroll
    for (int first = 0; first < Size::kTile; first += Size::kQueryColumns) {
      Fragment<Size::kQueryColumns> scores, gradient;
      Products::multiply(q, k, first, dim, scores);
      Products::multiply(dout, v, first, dim, gradient);
      hide_keys(args.shape, rows, begin + first, scores);
      for_each(gradient, [&](float& value, int n, int i) {
        const float probability = exp2_approximately(fmaf(scores.at[n][i], args.shape.scale * kLog2E, -lse[i / 2]));
        value = probability * ((kept.has(first / 8 + n, i) ? value : 0.0F) - row_dot[i / 2]);
      });
      Products::add(gradient, k, first, dim, dq);
    }
  });
  const float scale = args.shape.scale * keep.scale;
  __syncthreads();
  store_rows(dq, {scale, scale}, rows, head_of_block(args.dq, args.grad_stride, dim, aligned), places[0]);
}

// What the gradients of keys need to know of a tile of queries: of each two beside each other log-sum-exps (of powers
// of two), then row_dots.
template <typename Size>
struct QueryTile {
  alignas(16) float of[Size::kTile / 2][4];
};

// Of scores: the probabilities that dropout kept. Of the gradients of those: the scores' gradients, over both scales.
template <typename Size>
__device__ void take_gradients(const typename KeptTile<Size>::Columns& kept, const QueryTile<Size>& queries,
                               float scale, Fragment<Size::kTile>& scores, Fragment<Size::kTile>& gradients) {
#pragma unroll
  for (int n = 0; n < Size::kTile / 8; ++n) {
    const auto of_queries = *reinterpret_cast<const Chunk<float>*>(queries.of[column_of(n, 0) / 2]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_kept = kept.has(n, i);
      const float probability = exp2_approximately(fmaf(scores.at[n][i], scale * kLog2E, -of_queries.at[i % 2]));
      gradients.at[n][i] = probability * ((is_kept ? gradients.at[n][i] : 0.0F) - of_queries.at[2 + i % 2]);
      scores.at[n][i] = is_kept ? probability : 0.0F;
    }
  }
}

// dk and dv of a tile of keys. Fragments have its keys as rows and queries as columns.
template <typename Size, typename T = typename Size::T>
__global__ void __launch_bounds__(Size::kThreads, Size::kKeyBlocks)
    key_gradient_kernel(AttentionBackward<T> args, Keep keep, const float* row_dots, bool is_aligned) {
  using Products = WarpProducts<Size, T>;
  using Loader = TileLoader<Size>;
  __shared__ Tile<Size> places[4];
  __shared__ KeptTile<Size> kept_tile;
  __shared__ QueryTile<Size> query_tile;
  Rows rows;
  if (!find_rows<Size::kTile>(args.shape, blockIdx.x, rows)) return;
  const int64_t dim = Size::kWhole ? Size::kDim : args.shape.head_dim;
  const bool aligned = Size::kWhole || is_aligned;
  const bool is_causal = args.shape.mask == AttentionMask::kCausal;
  const int first_query = is_causal ? rows.begin : 0;
  BackwardTiles<Size> tiles(places, Loader(head_of_block(args.q, args.qkv_stride, dim, aligned), rows),
                            Loader(head_of_block(args.dout, args.out_stride, dim, aligned), rows));
  tiles.load(Loader(head_of_block(args.k, args.qkv_stride, dim, aligned), rows),
             Loader(head_of_block(args.v, args.qkv_stride, dim, aligned), rows), rows.begin, first_query);
  const typename Products::Left k(tiles.own_first());
  const typename Products::Left v(tiles.own_second());
  // Of each query two threads have a part.
  const int query = static_cast<int>(threadIdx.x) / 2;
  const int part = static_cast<int>(threadIdx.x) % 2;
  uint32_t word = 0;
  float number = 0;
  const auto load_parts = [&](int begin) {
    word = load_kept<Size>(keep, args.shape, rows, begin + query, rows.begin, part);
    const int64_t at = (rows.first_token + begin + query) * args.shape.num_heads + blockIdx.y;
    const bool is_there = begin + query < rows.length;
    if (part == 0) number = is_there ? args.lse[at] * kLog2E : INFINITY;
    if (part == 1) number = is_there ? row_dots[at] : 0.0F;
  };
  load_parts(first_query);
  const auto stage = [&](int begin) {
    kept_tile.put(word);
    query_tile.of[query / 2][2 * part + query % 2] = number;
    if (begin + Size::kTile < rows.length) load_parts(begin + Size::kTile);
  };
  Fragment<Size::kDim> dk = {};
  Fragment<Size::kDim> dv = {};
  tiles.for_each(first_query, rows.length, stage, [&](int begin, const Tile<Size>& q, const Tile<Size>& dout) {
    Fragment<Size::kTile> probabilities, gradient;
    Products::multiply(k, q, 0, dim, probabilities);
    Products::multiply(v, dout, 0, dim, gradient);
    if (is_causal && begin == rows.begin) {
      for_each(probabilities, [](float& score, int n, int i) {
        score = first_row_of_warp() + row_of(i) > column_of(n, i) ? -INFINITY : score;
      });
    }
    take_gradients(typename KeptTile<Size>::Columns(kept_tile), query_tile, args.shape.scale, probabilities, gradient);
    Products::add(probabilities, dout, 0, dim, dv);
    Products::add(gradient, q, 0, dim, dk);
  });
  const float scale = args.shape.scale * keep.scale;
  __syncthreads();
  store_rows(dk, {scale, scale}, rows, head_of_block(args.dk, args.grad_stride, dim, aligned), places[0]);
  store_rows(dv, {keep.scale, keep.scale}, rows, head_of_block(args.dv, args.grad_stride, dim, aligned), places[1]);
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

}  // namespace

template <typename T>
int attention_backward(const AttentionBackward<T>& args, int64_t tokens, void* stream) {
  if (tokens == 0) return 0;
  const int64_t dim = args.shape.head_dim;
  const bool aligned = are_aligned<Chunk<T>>({dim, args.qkv_stride, args.out_stride, args.grad_stride}, args.q, args.k,
                                             args.v, args.out, args.dout, args.dq, args.dk, args.dv);
  return with_tiling<T>(dim, aligned,
                        [&]<typename Size>(Size) { return backward<Size>(args, tokens, stream, aligned); });
}

#define STRAKE_INSTANTIATE(T) template int attention_backward(const AttentionBackward<T>&, int64_t, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
