#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"

namespace strake::kernels::cuda {
namespace {

constexpr int64_t kTokenChunk = 64;  // of the sums over tokens, as on the CPU
constexpr int kColumnThreads = 128;

// A block has a token; a thread has the same groups of four columns in every loop, so that it reads what it wrote.
template <typename Visit>
__device__ void for_each_column(int64_t columns, const Visit& visit) {
  for (int64_t quad = threadIdx.x; 4 * quad < columns; quad += kThreads) {
    for (int64_t c = 4 * quad; c < 4 * quad + 4 && c < columns; ++c) visit(c);
  }
}

template <typename T>
__global__ void forward_kernel(ResidualLayerNormForward<T> args, Keep keep) {
  __shared__ float shared[2][kThreads / kWarp];
  const int64_t token = blockIdx.x;
  const int64_t row = token * args.stride;
  float total = 0;
  for (int64_t quad = threadIdx.x; 4 * quad < args.columns; quad += kThreads) {
    const KeepFactors factors = keep_factors(keep, token, quad);
    for (int64_t i = 0; i < 4 && 4 * quad + i < args.columns; ++i) {
      const int64_t at = row + 4 * quad + i;
      const float residual = args.residual == nullptr ? 0.0F : to_float(args.residual[at]);
      const T sum = from_float<T>(to_float(args.x[at]) * factors.of[i] + residual);
      args.sum[at] = sum;
      total += to_float(sum);
    }
  }
  const float mean = block_sum(total, shared[0]) / static_cast<float>(args.columns);
  float squares = 0;
  for_each_column(args.columns, [&](int64_t c) {
    const float centred = to_float(args.sum[row + c]) - mean;
    squares += centred * centred;
  });
  const float variance = block_sum(squares, shared[1]) / static_cast<float>(args.columns);
  const float rstd = 1.0F / sqrtf(variance + args.eps);
  for_each_column(args.columns, [&](int64_t c) {
    const float normal = (to_float(args.sum[row + c]) - mean) * rstd;
    args.y[row + c] = from_float<T>(normal * to_float(args.gamma[c]) + to_float(args.beta[c]));
  });
  if (threadIdx.x == 0) {
    args.mean[token] = mean;
    args.rstd[token] = rstd;
  }
}

// With n = (sum - mean) rstd and g = dy gamma: dsum = rstd (g - mean(g) - n mean(g n)).
template <typename T>
__global__ void backward_kernel(ResidualLayerNormBackward<T> args, Keep keep) {
  __shared__ float shared[2][kThreads / kWarp];
  const int64_t token = blockIdx.x;
  const int64_t row = token * args.columns;
  const float mean = args.mean[token];
  const float rstd = args.rstd[token];
  float sum_g = 0;
  float sum_gn = 0;
  for_each_column(args.columns, [&](int64_t c) {
    const float g = to_float(args.dy[row + c]) * to_float(args.gamma[c]);
    sum_g += g;
    sum_gn += g * ((to_float(args.sum[row + c]) - mean) * rstd);
  });
  const float mean_g = block_sum(sum_g, shared[0]) / static_cast<float>(args.columns);
  const float mean_gn = block_sum(sum_gn, shared[1]) / static_cast<float>(args.columns);
  for (int64_t quad = threadIdx.x; 4 * quad < args.columns; quad += kThreads) {
    const KeepFactors factors = keep_factors(keep, token, quad);
    for (int64_t i = 0; i < 4 && 4 * quad + i < args.columns; ++i) {
      const int64_t c = 4 * quad + i;
      const float g = to_float(args.dy[row + c]) * to_float(args.gamma[c]);
      const float normal = (to_float(args.sum[row + c]) - mean) * rstd;
      const float above = args.dsum_in == nullptr ? 0.0F : to_float(args.dsum_in[row + c]);
      const float dsum = rstd * (g - mean_g - normal * mean_gn) + above;
      args.dsum[row + c] = from_float<T>(dsum);
      args.dx[row + c] = from_float<T>(dsum * factors.of[i]);
    }
  }
}

// partials[chunk][0] of dgamma, [chunk][1] of dbeta; a thread has a column.
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
    const float dy = to_float(args.dy[at]);
    dgamma += dy * ((to_float(args.sum[at]) - args.mean[token]) * args.rstd[token]);
    dbeta += dy;
  }
  float* const partial = partials + int64_t{blockIdx.x} * args.columns + c;
  partial[0] = dgamma;
  partial[int64_t{gridDim.x} * args.columns] = dbeta;
}

}  // namespace

template <typename T>
int residual_layer_norm_forward(const ResidualLayerNormForward<T>& args, void* stream) {
  return launch(&forward_kernel<T>, {args.tokens}, kThreads, stream, args, keep_of(args.dropout, args.index));
}

template <typename T>
int residual_layer_norm_backward(const ResidualLayerNormBackward<T>& args, void* stream) {
  const int64_t chunks = ceil_div(args.tokens, kTokenChunk);
  const Workspace<float> partials(2 * chunks * args.columns, stream);
  if (partials.error() != 0) return partials.error();
  // First of all: dsum may go over dy.
  int error = launch(&parameters_kernel<T>, {chunks, ceil_div(args.columns, kColumnThreads)}, kColumnThreads, stream,
                     args, partials.data());
  if (error == 0) error = join_partials(partials.data(), chunks, args.columns, args.dgamma, stream);
  if (error == 0) {
    error = join_partials(partials.data() + chunks * args.columns, chunks, args.columns, args.dbeta, stream);
  }
  if (error != 0) return error;
  return launch(&backward_kernel<T>, {args.tokens}, kThreads, stream, args, keep_of(args.dropout, args.index));
}

#define STRAKE_INSTANTIATE(T)                                                          \
  template int residual_layer_norm_forward(const ResidualLayerNormForward<T>&, void*); \
  template int residual_layer_norm_backward(const ResidualLayerNormBackward<T>&, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
