#include "strake/kernels/cuda/residual_layer_norm.cuh"

namespace strake::kernels::cuda {
namespace {

// With n = (sum - mean) rstd and g = dy gamma: dsum = rstd (g - mean(g) - n mean(g n)).
// For rows that a block has.
template <typename T, typename Team>
__global__ void __launch_bounds__(Team::kThreads)
    backward_kernel(ResidualLayerNormBackward<T> args, Keep keep, bool aligned) {
  __shared__ float shared[2][kWarp];
  const int64_t token = blockIdx.x;
  const int64_t row = token * args.columns;
  const float mean = args.mean[token];
  const float rstd = args.rstd[token];
  const TokenCounter counter = counter_of(keep, token);
  Quad<T> dy[Team::kQuads], sums[Team::kQuads];
  float sum_g = 0;
  float sum_gn = 0;
#pragma unroll
  for (int q = 0; q < Team::kQuads; ++q) {
    const int64_t c = Team::column(q), count = args.columns - c;
    if (count <= 0) break;
    dy[q] = load_chunk<Quad<T>>(args.dy + row + c, count, aligned);
    sums[q] = load_chunk<Quad<T>>(args.sum + row + c, count, aligned);
    const auto gamma = load_chunk<Quad<T>>(args.gamma + c, count, aligned);
    for (int i = 0; i < 4; ++i) {
      const float g = wide(dy[q].at[i]) * wide(gamma.at[i]);  // zeros behind the row
      sum_g += g;
      sum_gn += g * ((wide(sums[q].at[i]) - mean) * rstd);
    }
  }
  const float mean_g = Team::sum(sum_g, shared[0]) / static_cast<float>(args.columns);
  const float mean_gn = Team::sum(sum_gn, shared[1]) / static_cast<float>(args.columns);
#pragma unroll
  for (int q = 0; q < Team::kQuads; ++q) {
    const int64_t c = Team::column(q), count = args.columns - c;
    if (count <= 0) break;
    const KeepFactors factors = keep_factors(keep, counter, c / 4);
    const auto gamma = load_chunk<Quad<T>>(args.gamma + c, count, aligned);
    const auto above =
        args.dsum_in == nullptr ? Quad<T>{} : load_chunk<Quad<T>>(args.dsum_in + row + c, count, aligned);
    Quad<T> all, dx;
    for (int i = 0; i < 4; ++i) {
      const float g = wide(dy[q].at[i]) * wide(gamma.at[i]);
      const float normal = (wide(sums[q].at[i]) - mean) * rstd;
      const float dsum = rstd * (g - mean_g - normal * mean_gn) + wide(above.at[i]);
      all.at[i] = narrow<T>(dsum);
      dx.at[i] = narrow<T>(dsum * factors.of[i]);
    }
    store_chunk(args.dsum + row + c, all, count, aligned);
    if (args.dx != args.dsum) store_chunk(args.dx + row + c, dx, count, aligned);
  }
}

// partials[0][chunk] of dgamma, [1][chunk] of dbeta.
__device__ inline float* partial_of(float* partials, int64_t which, int64_t columns) {
  return partials + (which * gridDim.x + blockIdx.x) * columns;
}

// Of what was measured on an H100 (chunks of 16 to 64, 2 or 4 rows, 2 to 4 blocks on a multiprocessor): few registers
// for each thread, so that many warps are there to wait for memory, and blocks enough for all multiprocessors.
constexpr int64_t kNormChunk = 32;  // tokens of a block
constexpr int kRowsTogether = 2;    // whose loads are under way together
constexpr int kBlocksTogether = 4;  // on a multiprocessor
constexpr int kMostWarps = kThreads / kWarp;
static_assert(4 * kThreads == Team<kWarp>::kMostColumns);

// Sums over a row of g and g n, or their means.
struct RowSums {
  float g;
  float gn;
};

// A thread's four columns of kRowsTogether rows of a backward pass.
template <typename T, bool kAligned>
class RowGroup {
 public:
  __device__ RowGroup(const ResidualLayerNormBackward<T>& args, const Keep& keep)
      : args_(args),
        keep_(keep),
        count_(args.columns - column()),
        gamma_(load_chunk<Quad<T>>(args.gamma + column(), count_, kAligned)) {}

  static __device__ int64_t column() { return int64_t{4} * threadIdx.x; }
  __device__ int64_t count() const { return count_; }  // of columns that are there; may be below 0

  // Rows from `first` on; zeros behind `end` and behind the row.
  __device__ void load(int64_t first, int64_t end) {
    first_ = first;
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      const bool is_there = first + r < end;
      const int64_t columns = is_there ? count() : 0;
      dy_[r] = load_chunk<Quad<T>>(args_.dy + at(r), columns, kAligned);
      sums_[r] = load_chunk<Quad<T>>(args_.sum + at(r), columns, kAligned);
      above_[r] = args_.dsum_in == nullptr ? Quad<T>{} : load_chunk<Quad<T>>(args_.dsum_in + at(r), columns, kAligned);
      mean_[r] = is_there ? args_.mean[first + r] : 0.0F;
      rstd_[r] = is_there ? args_.rstd[first + r] : 0.0F;
    }
  }

  // The thread's part of row r's sums. Its part of dgamma and dbeta is added to them.
  __device__ RowSums take(int r, Quad<float>& dgamma, Quad<float>& dbeta) const {
    RowSums sums{};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float value = wide(dy_[r].at[i]);
      const float g = value * wide(gamma_.at[i]);
      dgamma.at[i] += value * normal(r, i);
      dbeta.at[i] += value;
      sums.g += g;
      sums.gn += g * normal(r, i);
    }
    return sums;
  }

  __device__ void store(int r, const RowSums& means) const {
    const KeepFactors factors = keep_factors(keep_, counter_of(keep_, first_ + r), column() / 4);
    Quad<T> all, dx;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float g = wide(dy_[r].at[i]) * wide(gamma_.at[i]);
      const float dsum = rstd_[r] * (g - means.g - normal(r, i) * means.gn) + wide(above_[r].at[i]);
      all.at[i] = narrow<T>(dsum);
      dx.at[i] = narrow<T>(dsum * factors.of[i]);
    }
    store_chunk(args_.dsum + at(r), all, count(), kAligned);
    if (args_.dx != args_.dsum) store_chunk(args_.dx + at(r), dx, count(), kAligned);
  }

 private:
  __device__ int64_t at(int r) const { return (first_ + r) * args_.columns + column(); }
  __device__ float normal(int r, int i) const { return (wide(sums_[r].at[i]) - mean_[r]) * rstd_[r]; }

  const ResidualLayerNormBackward<T>& args_;
  const Keep& keep_;
  int64_t count_;
  Quad<T> gamma_;
  int64_t first_ = 0;
  Quad<T> dy_[kRowsTogether], sums_[kRowsTogether], above_[kRowsTogether];
  float mean_[kRowsTogether], rstd_[kRowsTogether];
};

// Both in one, for rows that a warp could have, as memory is then read once: a block has a chunk of tokens, a thread
// four columns.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads, kBlocksTogether)
    chunk_backward_kernel(ResidualLayerNormBackward<T> args, Keep keep, float* partials) {
  __shared__ RowSums shared[2][kRowsTogether][kMostWarps];  // by turns, so that one barrier is enough
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const auto [begin, end] = chunk_of_block(args.tokens, kNormChunk);
  RowGroup<T, kAligned> rows(args, keep);
  Quad<float> dgamma{}, dbeta{};
  for (int64_t first = begin; first < end; first += kRowsTogether) {
    auto& sums = shared[first / kRowsTogether % 2];
    rows.load(first, end);
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      const RowSums own = rows.take(r, dgamma, dbeta);
      const RowSums of_warp{warp_sum(own.g), warp_sum(own.gn)};
      if (threadIdx.x % kWarp == 0) sums[r][threadIdx.x / kWarp] = of_warp;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      if (first + r >= end || rows.count() <= 0) break;
      RowSums means{};
      for (int warp = 0; warp < warps; ++warp) means.g += sums[r][warp].g, means.gn += sums[r][warp].gn;
      means.g /= static_cast<float>(args.columns);
      means.gn /= static_cast<float>(args.columns);
      rows.store(r, means);
    }
  }
  const int64_t c = rows.column();
  store_chunk(partial_of(partials, 0, args.columns) + c, dgamma, rows.count(), args.columns % 4 == 0);
  store_chunk(partial_of(partials, 1, args.columns) + c, dbeta, rows.count(), args.columns % 4 == 0);
}

// Beside backward_kernel; a thread has a column.
template <typename T>
__global__ void parameters_kernel(ResidualLayerNormBackward<T> args, float* partials) {
  const int64_t c = int64_t{blockIdx.y} * kColumnThreads + threadIdx.x;
  if (c >= args.columns) return;
  const auto [begin, end] = chunk_of_block(args.tokens);
  float dgamma = 0;
  float dbeta = 0;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t at = token * args.columns + c;
    const float dy = wide(args.dy[at]);
    dgamma += dy * ((wide(args.sum[at]) - args.mean[token]) * args.rstd[token]);
    dbeta += dy;
  }
  partial_of(partials, 0, args.columns)[c] = dgamma;
  partial_of(partials, 1, args.columns)[c] = dbeta;
}

}  // namespace

template <typename T>
int residual_layer_norm_backward(const ResidualLayerNormBackward<T>& args, void* stream) {
  const bool aligned =
      are_aligned<Quad<T>>({args.columns}, args.dy, args.sum, args.gamma, args.dsum_in, args.dsum, args.dx);
  const Keep keep = keep_of(args.dropout, args.index);
  return with_team(args.columns, [&]<typename Team>() {
    constexpr bool kInOne = Team::kThreads == kWarp;
    const int64_t chunks = ceil_div(args.tokens, kInOne ? kNormChunk : kTokenChunk);
    const Workspace<float> partials(2 * chunks * args.columns, stream);
    if (partials.error() != 0) return partials.error();
    int error = 0;
    if constexpr (kInOne) {
      const int threads = static_cast<int>(ceil_div(args.columns, 4 * kWarp)) * kWarp;
      error = launch(aligned ? &chunk_backward_kernel<T, true> : &chunk_backward_kernel<T, false>, {chunks}, threads,
                     stream, args, keep, partials.data());
    } else {
      // The parameters first: dsum may go over dy.
      const Grid grid{chunks, ceil_div(args.columns, kColumnThreads)};
      error = launch(&parameters_kernel<T>, grid, kColumnThreads, stream, args, partials.data());
      if (error != 0) return error;
      error = launch(&backward_kernel<T, Team>, {args.tokens}, Team::kThreads, stream, args, keep, aligned);
    }
    if (error != 0) return error;
    return join_partials(partials.data(), chunks, args.columns, {2, {args.dgamma, args.dbeta}}, stream);
  });
}

#define STRAKE_INSTANTIATE(T) template int residual_layer_norm_backward(const ResidualLayerNormBackward<T>&, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
