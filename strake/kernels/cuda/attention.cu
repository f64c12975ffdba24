#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"

// Attention over tiles of queries and keys that lie in shared memory, softmax taken online (Dao et al.,
// "FlashAttention", NeurIPS 2022; "FlashAttention-2", arXiv:2307.08691). Arithmetic is fp32 without tensor cores.
//
// A block has a tile of kTile rows of one head of one sequence, four threads (lanes) to a row: each takes a quarter of
// the other side's tile and of the row's sums. The backward pass is two kernels, one for dq by rows of queries and one
// for dk and dv by rows of keys, both of which compute the probabilities again: more work than adding dq up across
// blocks, but every sum has a fixed order.
namespace strake::kernels::cuda {
namespace {

constexpr int kLanes = 4;

// Threads are kLanes * kTile. kDim is the largest head size. Tiles of at most 37 KiB in all.
template <int kDim_, int kTile_>
struct Tiling {
  static constexpr int kDim = kDim_;
  static constexpr int kTile = kTile_;
  static constexpr int kShare = kTile / kLanes;  // of a tile's rows, which a lane takes
  static constexpr int kSums = kDim / kLanes;    // of a row, which a lane has: elements lane, lane + 4, ...
};
using Narrow = Tiling<64, 32>;
using Wide = Tiling<128, 16>;

// Rows of one head, with a column more than they have, so that lanes meet no bank twice.
template <typename Size>
using Tile = float[Size::kTile][Size::kDim + 1];
template <typename Size>
using Scores = float[Size::kTile][Size::kTile + 1];

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

// Rows [begin, begin + kTile) of a head; zeros behind the sequence and behind the head.
template <typename Size, typename T>
__device__ void load_tile(Tile<Size>& tile, const T* head, int64_t stride, const Rows& rows, int64_t begin,
                          int64_t dim) {
  for (int n = threadIdx.x; n < Size::kTile * Size::kDim; n += kLanes * Size::kTile) {
    const int row = n / Size::kDim;
    const int d = n % Size::kDim;
    const bool is_there = begin + row < rows.length && d < dim;
    tile[row][d] = is_there ? to_float(head[(rows.first_token + begin + row) * stride + d]) : 0.0F;
  }
}

__device__ float sum_of_lanes(float value) {
  value += __shfl_xor_sync(0xFFFFFFFFU, value, 1);
  return value + __shfl_xor_sync(0xFFFFFFFFU, value, 2);
}
__device__ float max_of_lanes(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 2));
}

// products[i] = row . others[first + i]
template <typename Size>
__device__ void multiply_row(const float (&row)[Size::kDim + 1], const Tile<Size>& others, int first, int64_t dim,
                             float (&products)[Size::kShare]) {
  for (int i = 0; i < Size::kShare; ++i) products[i] = 0;
  for (int d = 0; d < dim; ++d) {
    const float value = row[d];
#pragma unroll
    for (int i = 0; i < Size::kShare; ++i) products[i] = fmaf(value, others[first + i][d], products[i]);
  }
}

// sums += weights . others, of the lane's elements
template <typename Size>
__device__ void add_rows(const float (&weights)[Size::kTile + 1], const Tile<Size>& others, int lane,
                         float (&sums)[Size::kSums]) {
  for (int j = 0; j < Size::kTile; ++j) {
    const float weight = weights[j];
#pragma unroll
    for (int n = 0; n < Size::kSums; ++n) sums[n] = fmaf(weight, others[j][lane + kLanes * n], sums[n]);
  }
}

template <typename Size, typename T>
__device__ void store_row(const float (&sums)[Size::kSums], float factor, int lane, int64_t dim, T* row) {
#pragma unroll
  for (int n = 0; n < Size::kSums; ++n) {
    const int d = lane + kLanes * n;
    if (d < dim) row[d] = from_float<T>(sums[n] * factor);
  }
}

// Dropout factors of the lane's keys.
template <typename Size>
__device__ void factors_of_keys(const Keep& keep, int64_t token, int64_t head, int64_t first_key,
                                float (&factors)[Size::kShare]) {
  const int64_t first_quad = (head * kMaxAttentionKeysWithDropout + first_key) / 4;
  for (int quad = 0; quad < Size::kShare / 4; ++quad) {
    const KeepFactors words = keep_factors(keep, token, first_quad + quad);
    for (int i = 0; i < 4; ++i) factors[4 * quad + i] = words.of[i];
  }
}

__device__ bool sees(const AttentionShape& shape, const Rows& rows, int64_t query, int64_t key) {
  return query < rows.length && key < rows.length && (shape.mask == AttentionMask::kFull || key <= query);
}

// How many keys some query of a tile sees.
template <typename Size>
__device__ int64_t keys_of(const AttentionShape& shape, const Rows& queries) {
  const int64_t last = queries.begin + Size::kTile;
  return shape.mask == AttentionMask::kCausal && last < queries.length ? last : queries.length;
}

template <typename Size, typename T>
__global__ void __launch_bounds__(kLanes* Size::kTile) forward_kernel(AttentionForward<T> args, Keep keep) {
  __shared__ Tile<Size> q, k, v;
  __shared__ Scores<Size> p;
  Rows rows;
  if (!find_rows<Size::kTile>(args.shape, blockIdx.x, rows)) return;
  const int64_t dim = args.shape.head_dim;
  const int64_t head = blockIdx.y;
  const int row = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int first = lane * Size::kShare;
  const int64_t query = rows.begin + row;
  const int64_t token = rows.first_token + query;
  const int64_t keys = keys_of<Size>(args.shape, rows);
  load_tile<Size>(q, args.q + head * dim, args.qkv_stride, rows, rows.begin, dim);
  float largest = -INFINITY;
  float total = 0;
  float sums[Size::kSums] = {};
  for (int64_t begin = 0; begin < keys; begin += Size::kTile) {
    __syncthreads();
    load_tile<Size>(k, args.k + head * dim, args.qkv_stride, rows, begin, dim);
    load_tile<Size>(v, args.v + head * dim, args.qkv_stride, rows, begin, dim);
    __syncthreads();
    float scores[Size::kShare];
    multiply_row<Size>(q[row], k, first, dim, scores);
    float tile_largest = -INFINITY;
    for (int i = 0; i < Size::kShare; ++i) {
      const bool is_seen = sees(args.shape, rows, query, begin + first + i);
      scores[i] = is_seen ? args.shape.scale * scores[i] : -INFINITY;
      tile_largest = fmaxf(tile_largest, scores[i]);
    }
    const float new_largest = fmaxf(largest, max_of_lanes(tile_largest));
    const float shrink = new_largest == -INFINITY ? 1.0F : expf(largest - new_largest);
    float factors[Size::kShare];
    const bool drops = keep.active && query < rows.length;
    if (drops) factors_of_keys<Size>(keep, token, head, begin + first, factors);
    float tile_total = 0;
    for (int i = 0; i < Size::kShare; ++i) {
      const float weight = scores[i] == -INFINITY ? 0.0F : expf(scores[i] - new_largest);
      tile_total += weight;
      p[row][first + i] = drops ? weight * factors[i] : weight;
    }
    total = fmaf(total, shrink, sum_of_lanes(tile_total));
    for (int n = 0; n < Size::kSums; ++n) sums[n] *= shrink;
    largest = new_largest;
    __syncwarp();
    add_rows<Size>(p[row], v, lane, sums);
  }
  if (query >= rows.length) return;
  store_row<Size>(sums, 1.0F / total, lane, dim, args.out + token * args.out_stride + head * dim);
  if (lane == 0) args.lse[token * args.shape.num_heads + head] = largest + logf(total);
}

// dq of a tile of queries, and row_dots = rowsum(dout out).
template <typename Size, typename T>
__global__ void __launch_bounds__(kLanes* Size::kTile)
    query_gradient_kernel(AttentionBackward<T> args, Keep keep, float* row_dots) {
  __shared__ Tile<Size> q, k, v, dout;
  __shared__ Scores<Size> ds;
  Rows rows;
  if (!find_rows<Size::kTile>(args.shape, blockIdx.x, rows)) return;
  const int64_t dim = args.shape.head_dim;
  const int64_t head = blockIdx.y;
  const int row = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int first = lane * Size::kShare;
  const int64_t query = rows.begin + row;
  const int64_t token = rows.first_token + query;
  const bool is_there = query < rows.length;
  const int64_t keys = keys_of<Size>(args.shape, rows);
  load_tile<Size>(q, args.q + head * dim, args.qkv_stride, rows, rows.begin, dim);
  load_tile<Size>(dout, args.dout + head * dim, args.out_stride, rows, rows.begin, dim);
  __syncthreads();
  float row_dot = 0;
  for (int64_t d = lane; is_there && d < dim; d += kLanes) {
    row_dot = fmaf(dout[row][d], to_float(args.out[token * args.out_stride + head * dim + d]), row_dot);
  }
  row_dot = sum_of_lanes(row_dot);
  const float lse = is_there ? args.lse[token * args.shape.num_heads + head] : 0.0F;
  if (is_there && lane == 0) row_dots[token * args.shape.num_heads + head] = row_dot;
  float sums[Size::kSums] = {};
  for (int64_t begin = 0; begin < keys; begin += Size::kTile) {
    __syncthreads();
    load_tile<Size>(k, args.k + head * dim, args.qkv_stride, rows, begin, dim);
    load_tile<Size>(v, args.v + head * dim, args.qkv_stride, rows, begin, dim);
    __syncthreads();
    float scores[Size::kShare];
    float dp[Size::kShare];
    multiply_row<Size>(q[row], k, first, dim, scores);
    multiply_row<Size>(dout[row], v, first, dim, dp);
    float factors[Size::kShare];
    const bool drops = keep.active && is_there;
    if (drops) factors_of_keys<Size>(keep, token, head, begin + first, factors);
    for (int i = 0; i < Size::kShare; ++i) {
      const bool is_seen = sees(args.shape, rows, query, begin + first + i);
      const float probability = is_seen ? expf(args.shape.scale * scores[i] - lse) : 0.0F;
      const float through = drops ? factors[i] * dp[i] : dp[i];
      ds[row][first + i] = is_seen ? args.shape.scale * probability * (through - row_dot) : 0.0F;
    }
    __syncwarp();
    add_rows<Size>(ds[row], k, lane, sums);
  }
  if (is_there) {
    store_row<Size>(sums, 1.0F, lane, dim, args.dq + token * args.grad_stride + head * dim);
  }
}

// dk and dv of a tile of keys.
template <typename Size, typename T>
__global__ void __launch_bounds__(kLanes* Size::kTile)
    key_gradient_kernel(AttentionBackward<T> args, Keep keep, const float* row_dots) {
  __shared__ Tile<Size> q, k, v, dout;
  __shared__ Scores<Size> weights;
  Rows rows;
  if (!find_rows<Size::kTile>(args.shape, blockIdx.x, rows)) return;
  const int64_t dim = args.shape.head_dim;
  const int64_t head = blockIdx.y;
  const int row = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int first = lane * Size::kShare;
  const int64_t key = rows.begin + row;
  load_tile<Size>(k, args.k + head * dim, args.qkv_stride, rows, rows.begin, dim);
  load_tile<Size>(v, args.v + head * dim, args.qkv_stride, rows, rows.begin, dim);
  float dk[Size::kSums] = {};
  float dv[Size::kSums] = {};
  const int64_t first_query = args.shape.mask == AttentionMask::kCausal ? rows.begin : 0;
  for (int64_t begin = first_query; begin < rows.length; begin += Size::kTile) {
    __syncthreads();
    load_tile<Size>(q, args.q + head * dim, args.qkv_stride, rows, begin, dim);
    load_tile<Size>(dout, args.dout + head * dim, args.out_stride, rows, begin, dim);
    __syncthreads();
    float scores[Size::kShare];
    float dp[Size::kShare];
    multiply_row<Size>(k[row], q, first, dim, scores);
    multiply_row<Size>(v[row], dout, first, dim, dp);
    float ds[Size::kShare];
    for (int i = 0; i < Size::kShare; ++i) {
      const int64_t query = begin + first + i;
      const bool is_seen = sees(args.shape, rows, query, key);
      const int64_t token = rows.first_token + query;
      const int64_t at = token * args.shape.num_heads + head;
      const float probability = is_seen ? expf(args.shape.scale * scores[i] - args.lse[at]) : 0.0F;
      float factor = 1.0F;
      if (keep.active && is_seen) {
        const int64_t element = head * kMaxAttentionKeysWithDropout + key;
        factor = keep_factors(keep, token, element / 4).of[element % 4];
      }
      weights[row][first + i] = factor * probability;
      ds[i] = is_seen ? args.shape.scale * probability * (factor * dp[i] - row_dots[at]) : 0.0F;
    }
    __syncwarp();
    add_rows<Size>(weights[row], dout, lane, dv);
    __syncwarp();
    for (int i = 0; i < Size::kShare; ++i) weights[row][first + i] = ds[i];
    __syncwarp();
    add_rows<Size>(weights[row], q, lane, dk);
  }
  if (key >= rows.length) return;
  const int64_t at = (rows.first_token + key) * args.grad_stride + head * dim;
  store_row<Size>(dk, 1.0F, lane, dim, args.dk + at);
  store_row<Size>(dv, 1.0F, lane, dim, args.dv + at);
}

template <typename Size, typename T>
int forward(const AttentionForward<T>& args, int64_t tokens, void* stream) {
  return launch(&forward_kernel<Size, T>, grid_of<Size::kTile>(args.shape, tokens), kLanes * Size::kTile, stream, args,
                keep_of(args.shape.dropout, args.shape.index));
}

template <typename Size, typename T>
int backward(const AttentionBackward<T>& args, int64_t tokens, void* stream) {
  const Workspace<float> row_dots(tokens * args.shape.num_heads, stream);
  if (row_dots.error() != 0) return row_dots.error();
  const Keep keep = keep_of(args.shape.dropout, args.shape.index);
  const Grid grid = grid_of<Size::kTile>(args.shape, tokens);
  constexpr int kBlock = kLanes * Size::kTile;
  const int error = launch(&query_gradient_kernel<Size, T>, grid, kBlock, stream, args, keep, row_dots.data());
  if (error != 0) return error;
  return launch(&key_gradient_kernel<Size, T>, grid, kBlock, stream, args, keep, row_dots.data());
}

}  // namespace

template <typename T>
int attention_forward(const AttentionForward<T>& args, int64_t tokens, void* stream) {
  if (args.shape.head_dim > kMaxHeadDim) return static_cast<int>(cudaErrorInvalidValue);
  if (tokens == 0) return 0;
  return args.shape.head_dim <= Narrow::kDim ? forward<Narrow>(args, tokens, stream)
                                             : forward<Wide>(args, tokens, stream);
}

template <typename T>
int attention_backward(const AttentionBackward<T>& args, int64_t tokens, void* stream) {
  if (args.shape.head_dim > kMaxHeadDim) return static_cast<int>(cudaErrorInvalidValue);
  if (tokens == 0) return 0;
  return args.shape.head_dim <= Narrow::kDim ? backward<Narrow>(args, tokens, stream)
                                             : backward<Wide>(args, tokens, stream);
}

#define STRAKE_INSTANTIATE(T)                                                 \
  template int attention_forward(const AttentionForward<T>&, int64_t, void*); \
  template int attention_backward(const AttentionBackward<T>&, int64_t, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
