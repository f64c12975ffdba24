#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"

namespace strake::kernels::cuda {
namespace {

// The threads that have a row, a warp or a block. Each has groups of four columns, which it keeps in registers, so that
// memory is read once.
template <int kThreads_>
struct Team {
  static constexpr int kThreads = kThreads_;
  static constexpr int kQuads = 8;  // of a thread
  static constexpr int64_t kMostColumns = int64_t{4} * kQuads * kThreads;
  static constexpr int kRows = kThreads == kWarp ? 4 : 1;  // of a block

  static __device__ int64_t row() { return int64_t{blockIdx.x} * kRows + threadIdx.x / kThreads; }
  static __device__ int64_t column(int quad) {
    return 4 * (quad * kThreads + static_cast<int>(threadIdx.x) % kThreads);
  }

  // Each thread gets the sum; all threads of a block call, if the team is one. `shared` as in block_sum().
  static __device__ float sum(float value, float* shared) {
    if constexpr (kThreads == kWarp) {
      return warp_sum(value);
    } else {
      return block_sum<kThreads>(value, shared);
    }
  }
};

template <typename T, typename Team>
__global__ void __launch_bounds__(Team::kRows* Team::kThreads)
    forward_kernel(ResidualLayerNormForward<T> args, Keep keep, bool aligned) {
  __shared__ float shared[2][kWarp];
  const int64_t token = Team::row();
  if (token >= args.tokens) return;
  const int64_t row = token * args.stride;
  const TokenCounter counter = counter_of(keep, token);
  Quad<T> sums[Team::kQuads];
  float total = 0;
#pragma unroll
  for (int q = 0; q < Team::kQuads; ++q) {
    const int64_t c = Team::column(q), count = args.columns - c;
    if (count <= 0) break;
    const auto x = load_chunk<Quad<T>>(args.x + row + c, count, aligned);
    const auto residual =
        args.residual == nullptr ? Quad<T>{} : load_chunk<Quad<T>>(args.residual + row + c, count, aligned);
    const KeepFactors factors = keep_factors(keep, counter, c / 4);
    for (int i = 0; i < 4; ++i) {
      sums[q].at[i] = narrow<T>(wide(x.at[i]) * factors.of[i] + wide(residual.at[i]));
      total += wide(sums[q].at[i]);  // zeros behind the row
    }
    store_chunk(args.sum + row + c, sums[q], count, aligned);
  }
  const float mean = Team::sum(total, shared[0]) / static_cast<float>(args.columns);
  float squares = 0;
#pragma unroll
  for (int q = 0; q < Team::kQuads; ++q) {
    const int64_t count = args.columns - Team::column(q);
    if (count <= 0) break;
    for (int i = 0; i < 4; ++i) {
      const float centred = i < count ? wide(sums[q].at[i]) - mean : 0.0F;
      squares += centred * centred;
    }
  }
  const float variance = Team::sum(squares, shared[1]) / static_cast<float>(args.columns);
  const float rstd = 1.0F / sqrtf(variance + args.eps);
#pragma unroll
  for (int q = 0; q < Team::kQuads; ++q) {
    const int64_t c = Team::column(q), count = args.columns - c;
    if (count <= 0) break;
    const auto gamma = load_chunk<Quad<T>>(args.gamma + c, count, aligned);
    const auto beta = load_chunk<Quad<T>>(args.beta + c, count, aligned);
    Quad<T> y;
    for (int i = 0; i < 4; ++i) {
      const float normal = (wide(sums[q].at[i]) - mean) * rstd;
      y.at[i] = narrow<T>(normal * wide(gamma.at[i]) + wide(beta.at[i]));
    }
    store_chunk(args.y + row + c, y, count, aligned);
  }
  if (Team::column(0) == 0) {
    args.mean[token] = mean;
    args.rstd[token] = rstd;
  }
}

// With n = (sum - mean) rstd and g = dy gamma: dsum = rstd (g - mean(g) - n mean(g n)).
template <typename T, typename Team>
__global__ void __launch_bounds__(Team::kRows* Team::kThreads)
    backward_kernel(ResidualLayerNormBackward<T> args, Keep keep, bool aligned) {
  __shared__ float shared[2][kWarp];
  const int64_t token = Team::row();
  if (token >= args.tokens) return;
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

constexpr int kRowsTogether = 4;  // whose loads are under way together
static_assert(4 * kThreads == Team<kWarp>::kMostColumns);

// Both in one, for rows that a warp could have, as memory is then read once: a block has a chunk of tokens, a thread
// four columns.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    chunk_backward_kernel(ResidualLayerNormBackward<T> args, Keep keep, float* partials, bool aligned) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ float shared[kRowsTogether][2][kWarps];
  const int64_t begin = int64_t{blockIdx.x} * kTokenChunk;
  const int64_t end = begin + kTokenChunk < args.tokens ? begin + kTokenChunk : args.tokens;
  const int64_t c = int64_t{4} * threadIdx.x;
  const int64_t count = args.columns - c;
  const auto gamma = load_chunk<Quad<T>>(args.gamma + c, count, aligned);
  Quad<float> dgamma{}, dbeta{};
  for (int64_t first = begin; first < end; first += kRowsTogether) {
    Quad<T> dy[kRowsTogether], sums[kRowsTogether], above[kRowsTogether];
    float mean[kRowsTogether], rstd[kRowsTogether];
    TokenCounter counters[kRowsTogether];
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      const bool is_there = first + r < end;
      const int64_t at = (first + r) * args.columns + c;
      dy[r] = load_chunk<Quad<T>>(args.dy + at, is_there ? count : 0, aligned);
      sums[r] = load_chunk<Quad<T>>(args.sum + at, is_there ? count : 0, aligned);
      above[r] =
          args.dsum_in == nullptr ? Quad<T>{} : load_chunk<Quad<T>>(args.dsum_in + at, is_there ? count : 0, aligned);
      mean[r] = is_there ? args.mean[first + r] : 0.0F;
      rstd[r] = is_there ? args.rstd[first + r] : 0.0F;
      counters[r] = counter_of(keep, is_there ? first + r : first);
    }
    __syncthreads();  // before `shared` is used again
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      float sum_g = 0;
      float sum_gn = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float value = wide(dy[r].at[i]);  // zeros behind the row
        const float normal = (wide(sums[r].at[i]) - mean[r]) * rstd[r];
        dgamma.at[i] += value * normal;
        dbeta.at[i] += value;
        const float g = value * wide(gamma.at[i]);
        sum_g += g;
        sum_gn += g * normal;
      }
      sum_g = warp_sum(sum_g);
      sum_gn = warp_sum(sum_gn);
      if (threadIdx.x % kWarp == 0) {
        shared[r][0][threadIdx.x / kWarp] = sum_g;
        shared[r][1][threadIdx.x / kWarp] = sum_gn;
      }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      if (first + r >= end || count <= 0) break;
      float mean_g = 0;
      float mean_gn = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        mean_g += shared[r][0][warp];
        mean_gn += shared[r][1][warp];
      }
      mean_g /= static_cast<float>(args.columns);
      mean_gn /= static_cast<float>(args.columns);
      const KeepFactors factors = keep_factors(keep, counters[r], c / 4);
      Quad<T> all, dx;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float g = wide(dy[r].at[i]) * wide(gamma.at[i]);
        const float normal = (wide(sums[r].at[i]) - mean[r]) * rstd[r];
        const float dsum = rstd[r] * (g - mean_g - normal * mean_gn) + wide(above[r].at[i]);
        all.at[i] = narrow<T>(dsum);
        dx.at[i] = narrow<T>(dsum * factors.of[i]);
      }
      const int64_t at = (first + r) * args.columns + c;
      store_chunk(args.dsum + at, all, count, aligned);
      if (args.dx != args.dsum) store_chunk(args.dx + at, dx, count, aligned);
    }
  }
  store_chunk(partial_of(partials, 0, args.columns) + c, dgamma, count, args.columns % 4 == 0);
  store_chunk(partial_of(partials, 1, args.columns) + c, dbeta, count, args.columns % 4 == 0);
}

// Beside backward_kernel; a thread has a column.
template <typename T>
__global__ void parameters_kernel(ResidualLayerNormBackward<T> args, float* partials) {
  const int64_t c = int64_t{blockIdx.y} * kColumnThreads + threadIdx.x;
  if (c >= args.columns) return;
  const int64_t begin = int64_t{blockIdx.x} * kTokenChunk;
  const int64_t end = begin + kTokenChunk < args.tokens ? begin + kTokenChunk : args.tokens;
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

// use.template operator()<Team>()
template <typename Use>
int with_team(int64_t columns, const Use& use) {
  if (columns <= Team<kWarp>::kMostColumns) return use.template operator()<Team<kWarp>>();
  if (columns <= Team<256>::kMostColumns) return use.template operator()<Team<256>>();
  if (columns <= Team<1024>::kMostColumns) return use.template operator()<Team<1024>>();
  return static_cast<int>(cudaErrorInvalidValue);
}
static_assert(Team<1024>::kMostColumns == kMostNormColumns);

}  // namespace

template <typename T>
int residual_layer_norm_forward(const ResidualLayerNormForward<T>& args, void* stream) {
  const bool aligned =
      are_aligned<Quad<T>>({args.columns, args.stride}, args.x, args.residual, args.gamma, args.beta, args.sum, args.y);
  return with_team(args.columns, [&]<typename Team>() {
    return launch(&forward_kernel<T, Team>, {ceil_div(args.tokens, Team::kRows)}, Team::kRows * Team::kThreads, stream,
                  args, keep_of(args.dropout, args.index), aligned);
  });
}

template <typename T>
int residual_layer_norm_backward(const ResidualLayerNormBackward<T>& args, void* stream) {
  const int64_t chunks = ceil_div(args.tokens, kTokenChunk);
  const Workspace<float> partials(2 * chunks * args.columns, stream);
  if (partials.error() != 0) return partials.error();
  const bool aligned =
      are_aligned<Quad<T>>({args.columns}, args.dy, args.sum, args.gamma, args.dsum_in, args.dsum, args.dx);
  const Keep keep = keep_of(args.dropout, args.index);
  const int error = with_team(args.columns, [&]<typename Team>() {
    if constexpr (Team::kThreads == kWarp) {
      return launch(&chunk_backward_kernel<T>, {chunks}, kThreads, stream, args, keep, partials.data(), aligned);
    } else {
      // The parameters first: dsum may go over dy.
      const Grid grid{chunks, ceil_div(args.columns, kColumnThreads)};
      const int first_error = launch(&parameters_kernel<T>, grid, kColumnThreads, stream, args, partials.data());
      if (first_error != 0) return first_error;
      return launch(&backward_kernel<T, Team>, {args.tokens}, Team::kThreads, stream, args, keep, aligned);
    }
  });
  if (error != 0) return error;
  return join_partials(partials.data(), chunks, args.columns, {2, {args.dgamma, args.dbeta}}, stream);
}

#define STRAKE_INSTANTIATE(T)                                                          \
  template int residual_layer_norm_forward(const ResidualLayerNormForward<T>&, void*); \
  template int residual_layer_norm_backward(const ResidualLayerNormBackward<T>&, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
