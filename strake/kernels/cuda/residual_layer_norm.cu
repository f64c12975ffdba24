#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"

namespace strake::kernels::cuda {
namespace {

constexpr int64_t kTokenChunk = 64;  // of the sums over tokens, as on the CPU
constexpr int kColumnThreads = 128;

// visit(first column, how many columns there are from it). A block has a token; a thread has the same groups of four
// columns in every loop, so that it reads what it wrote.
template <typename Visit>
__device__ void for_each_quad(int64_t columns, const Visit& visit) {
  for (int64_t c = 4 * threadIdx.x; c < columns; c += 4 * kThreads) visit(c, columns - c);
}

template <typename T>
__global__ void forward_kernel(ResidualLayerNormForward<T> args, Keep keep, bool aligned) {
  __shared__ float shared[2][kThreads / kWarp];
  const int64_t token = blockIdx.x;
  const int64_t row = token * args.stride;
  float total = 0;
  for_each_quad(args.columns, [&](int64_t c, int64_t count) {
    const KeepFactors factors = keep_factors(keep, token, c / 4);
    const auto x = load_chunk<Quad<T>>(args.x + row + c, count, aligned);
    const auto residual =
        args.residual == nullptr ? Quad<T>{} : load_chunk<Quad<T>>(args.residual + row + c, count, aligned);
    Quad<T> sum;
    for (int i = 0; i < 4; ++i) {
      sum.at[i] = from_float<T>(to_float(x.at[i]) * factors.of[i] + to_float(residual.at[i]));
      total += to_float(sum.at[i]);  // zeros behind the row
    }
    store_chunk(args.sum + row + c, sum, count, aligned);
  });
  const float mean = block_sum(total, shared[0]) / static_cast<float>(args.columns);
  float squares = 0;
  for_each_quad(args.columns, [&](int64_t c, int64_t count) {
    const auto sum = load_chunk<Quad<T>>(args.sum + row + c, count, aligned);
    for (int i = 0; i < 4; ++i) {
      const float centred = i < count ? to_float(sum.at[i]) - mean : 0.0F;
      squares += centred * centred;
    }
  });
  const float variance = block_sum(squares, shared[1]) / static_cast<float>(args.columns);
  const float rstd = 1.0F / sqrtf(variance + args.eps);
  for_each_quad(args.columns, [&](int64_t c, int64_t count) {
    const auto sum = load_chunk<Quad<T>>(args.sum + row + c, count, aligned);
    const auto gamma = load_chunk<Quad<T>>(args.gamma + c, count, aligned);
    const auto beta = load_chunk<Quad<T>>(args.beta + c, count, aligned);
    Quad<T> y;
    for (int i = 0; i < 4; ++i) {
      const float normal = (to_float(sum.at[i]) - mean) * rstd;
      y.at[i] = from_float<T>(normal * to_float(gamma.at[i]) + to_float(beta.at[i]));
    }
    store_chunk(args.y + row + c, y, count, aligned);
  });
  if (threadIdx.x == 0) {
    args.mean[token] = mean;
    args.rstd[token] = rstd;
  }
}

// With n = (sum - mean) rstd and g = dy gamma: dsum = rstd (g - mean(g) - n mean(g n)).
template <typename T>
__global__ void backward_kernel(ResidualLayerNormBackward<T> args, Keep keep, bool aligned) {
  __shared__ float shared[2][kThreads / kWarp];
  const int64_t token = blockIdx.x;
  const int64_t row = token * args.columns;
  const float mean = args.mean[token];
  const float rstd = args.rstd[token];
  float sum_g = 0;
  float sum_gn = 0;
  for_each_quad(args.columns, [&](int64_t c, int64_t count) {
    const auto dy = load_chunk<Quad<T>>(args.dy + row + c, count, aligned);
    const auto gamma = load_chunk<Quad<T>>(args.gamma + c, count, aligned);
    const auto sum = load_chunk<Quad<T>>(args.sum + row + c, count, aligned);
    for (int i = 0; i < 4; ++i) {
      const float g = to_float(dy.at[i]) * to_float(gamma.at[i]);  // zeros behind the row
      sum_g += g;
      sum_gn += g * ((to_float(sum.at[i]) - mean) * rstd);
    }
  });
  const float mean_g = block_sum(sum_g, shared[0]) / static_cast<float>(args.columns);
  const float mean_gn = block_sum(sum_gn, shared[1]) / static_cast<float>(args.columns);
  for_each_quad(args.columns, [&](int64_t c, int64_t count) {
    const KeepFactors factors = keep_factors(keep, token, c / 4);
    const auto dy = load_chunk<Quad<T>>(args.dy + row + c, count, aligned);
    const auto gamma = load_chunk<Quad<T>>(args.gamma + c, count, aligned);
    const auto sum = load_chunk<Quad<T>>(args.sum + row + c, count, aligned);
    const auto above =
        args.dsum_in == nullptr ? Quad<T>{} : load_chunk<Quad<T>>(args.dsum_in + row + c, count, aligned);
    Quad<T> all, dx;
    for (int i = 0; i < 4; ++i) {
      const float g = to_float(dy.at[i]) * to_float(gamma.at[i]);
      const float normal = (to_float(sum.at[i]) - mean) * rstd;
      const float dsum = rstd * (g - mean_g - normal * mean_gn) + to_float(above.at[i]);
      all.at[i] = from_float<T>(dsum);
      dx.at[i] = from_float<T>(dsum * factors.of[i]);
    }
    store_chunk(args.dsum + row + c, all, count, aligned);
    store_chunk(args.dx + row + c, dx, count, aligned);
  });
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
  return launch(&forward_kernel<T>, {args.tokens}, kThreads, stream, args, keep_of(args.dropout, args.index),
                are_aligned<Quad<T>>({args.columns, args.stride}, args.x, args.residual, args.gamma, args.beta,
                                     args.sum, args.y));
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
  return launch(&backward_kernel<T>, {args.tokens}, kThreads, stream, args, keep_of(args.dropout, args.index),
                are_aligned<Quad<T>>({args.columns}, args.dy, args.sum, args.gamma, args.dsum_in, args.dsum, args.dx));
}

#define STRAKE_INSTANTIATE(T)                                                          \
  template int residual_layer_norm_forward(const ResidualLayerNormForward<T>&, void*); \
  template int residual_layer_norm_backward(const ResidualLayerNormBackward<T>&, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
