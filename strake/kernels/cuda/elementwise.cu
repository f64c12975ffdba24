#include "strake/kernels/cuda/activation.cuh"
#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"

namespace strake::kernels::cuda {
namespace {

// Blocks that share out `count` elements, each thread with several.
constexpr int64_t kMostBlocks = 16384;
Grid grid_of(int64_t count) {
  const int64_t blocks = ceil_div(count, kThreads);
  return {blocks < kMostBlocks ? blocks : kMostBlocks};
}
__device__ int64_t first_element() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ int64_t element_stride() { return int64_t{gridDim.x} * kThreads; }

template <typename T>
__global__ void bias_activation_kernel(BiasActivationForward<T> args) {
  const int64_t row = int64_t{blockIdx.x} * args.columns;
  for (int64_t c = threadIdx.x; c < args.columns; c += kThreads) {
    args.y[row + c] = from_float<T>(activate(args.activation, biased(args.x, args.bias, row, c)));
  }
}

template <typename T>
__global__ void dropout_kernel(DropoutArgs<T> args, Keep keep) {
  const int64_t token = blockIdx.x;
  const int64_t row = token * args.columns;
  for (int64_t quad = threadIdx.x; 4 * quad < args.columns; quad += kThreads) {
    const KeepFactors factors = keep_factors(keep, token, quad);
    for (int64_t i = 0; i < 4 && 4 * quad + i < args.columns; ++i) {
      const int64_t at = row + 4 * quad + i;
      args.y[at] = from_float<T>(to_float(args.x[at]) * factors.of[i]);
    }
  }
}

template <typename T>
__global__ void from_float_kernel(const float* from, T* to, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) to[i] = strake::kernels::from_float<T>(from[i]);
}

template <typename T>
__global__ void to_float_kernel(const T* from, float* to, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) to[i] = strake::kernels::to_float(from[i]);
}

template <typename T>
__global__ void accumulate_kernel(float* sum, const T* x, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) sum[i] += strake::kernels::to_float(x[i]);
}

}  // namespace

template <typename T>
int bias_activation_forward(const BiasActivationForward<T>& args, void* stream) {
  return launch(&bias_activation_kernel<T>, {args.tokens}, kThreads, stream, args);
}

template <typename T>
int dropout(const DropoutArgs<T>& args, void* stream) {
  return launch(&dropout_kernel<T>, {args.tokens}, kThreads, stream, args, keep_of(args.dropout, args.index));
}

template <typename T>
int convert_from_float(const float* from, T* to, int64_t count, void* stream) {
  return launch(&from_float_kernel<T>, grid_of(count), kThreads, stream, from, to, count);
}

template <typename T>
int convert_to_float(const T* from, float* to, int64_t count, void* stream) {
  return launch(&to_float_kernel<T>, grid_of(count), kThreads, stream, from, to, count);
}

template <typename T>
int accumulate(float* sum, const T* x, int64_t count, void* stream) {
  return launch(&accumulate_kernel<T>, grid_of(count), kThreads, stream, sum, x, count);
}

#define STRAKE_INSTANTIATE(T)                                                   \
  template int bias_activation_forward(const BiasActivationForward<T>&, void*); \
  template int dropout(const DropoutArgs<T>&, void*);                           \
  template int convert_from_float(const float*, T*, int64_t, void*);            \
  template int convert_to_float(const T*, float*, int64_t, void*);              \
  template int accumulate(float*, const T*, int64_t, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
