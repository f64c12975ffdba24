#include "strake/kernels/cuda/activation.cuh"
#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"

namespace strake::kernels::cuda {
namespace {

constexpr int kActivationThreads = 128;

// A block has a token, a thread 16 bytes at a time.
template <typename T, Activation kActivation>
__global__ void __launch_bounds__(kActivationThreads)
    bias_activation_kernel(BiasActivationForward<T> args, bool aligned) {
  constexpr int kCount = Chunk<T>::kCount;
  const int64_t row = int64_t{blockIdx.x} * args.columns;
  for (int64_t c = kCount * threadIdx.x; c < args.columns; c += kCount * kActivationThreads) {
    const int64_t count = args.columns - c;
    const auto x = load_chunk<Chunk<T>>(args.x + row + c, count, aligned);
    const auto bias = args.bias == nullptr ? Chunk<T>{} : load_chunk<Chunk<T>>(args.bias + c, count, aligned);
    Chunk<T> y;
#pragma unroll
    for (int i = 0; i < kCount; ++i) y.at[i] = narrow<T>(activate<kActivation>(wide(x.at[i]) + wide(bias.at[i])));
    store_chunk(args.y + row + c, y, count, aligned);
  }
}

constexpr int kTokensAtOnce = 4;  // whose loads are under way together

// A thread has four columns of a chunk of tokens.
template <typename T, Activation kActivation>
__global__ void __launch_bounds__(kColumnThreads)
    bias_activation_backward_kernel(BiasActivationBackward<T> args, float* partials, bool aligned) {
  const auto [begin, end] = chunk_of_block(args.tokens);
  const int64_t column = 4 * (int64_t{blockIdx.y} * kColumnThreads + threadIdx.x);
  const int64_t count = args.columns - column;
  if (count <= 0) return;
  const auto bias = args.bias == nullptr ? Quad<T>{} : load_chunk<Quad<T>>(args.bias + column, count, aligned);
  Quad<float> sum{};
  for (int64_t first = begin; first < end; first += kTokensAtOnce) {
    Quad<T> x[kTokensAtOnce], dy[kTokensAtOnce];
#pragma unroll
    for (int t = 0; t < kTokensAtOnce; ++t) {
      const int64_t at = (first + t) * args.columns + column;
      x[t] = load_chunk<Quad<T>>(args.x + at, first + t < end ? count : 0, aligned);
      dy[t] = load_chunk<Quad<T>>(args.dy + at, first + t < end ? count : 0, aligned);
    }
#pragma unroll
    for (int t = 0; t < kTokensAtOnce; ++t) {
      if (first + t >= end) break;
      Quad<T> dx;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float slope = activation_derivative<kActivation>(wide(x[t].at[i]) + wide(bias.at[i]));
        const float value = wide(dy[t].at[i]) * slope;
        dx.at[i] = narrow<T>(value);
        sum.at[i] += value;
      }
      store_chunk(args.dx + (first + t) * args.columns + column, dx, count, aligned);
    }
  }
  if (partials == nullptr) return;
  store_chunk(partials + blockIdx.x * args.columns + column, sum, count, aligned);
}

}  // namespace

template <typename T>
int bias_activation_forward(const BiasActivationForward<T>& args, void* stream) {
  const bool aligned = are_aligned<Chunk<T>>({args.columns}, args.x, args.bias, args.y);
  return with_activation(args.activation, [&]<Activation kActivation>() {
    return launch(&bias_activation_kernel<T, kActivation>, {args.tokens}, kActivationThreads, stream, args, aligned);
  });
}

template <typename T>
int bias_activation_backward(const BiasActivationBackward<T>& args, void* stream) {
  const Grid grid{ceil_div(args.tokens, kTokenChunk), ceil_div(args.columns, 4 * kColumnThreads)};
  const Workspace<float> partials(args.dbias == nullptr ? 0 : grid.x * args.columns, stream);
  if (partials.error() != 0) return partials.error();
  const bool aligned = are_aligned<Quad<T>>({args.columns}, args.x, args.dy, args.bias, args.dx);
  const int error = with_activation(args.activation, [&]<Activation kActivation>() {
    return launch(&bias_activation_backward_kernel<T, kActivation>, grid, kColumnThreads, stream, args, partials.data(),
                  aligned);
  });
  if (error != 0 || args.dbias == nullptr) return error;
  return join_partials(partials.data(), grid.x, args.columns, {1, {args.dbias}}, stream);
}

#define STRAKE_INSTANTIATE(T)                                                   \
  template int bias_activation_forward(const BiasActivationForward<T>&, void*); \
  template int bias_activation_backward(const BiasActivationBackward<T>&, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
