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
__global__ void dropout_kernel(DropoutArgs<T> args, Keep keep, bool aligned) {
  const int64_t token = blockIdx.x;
  const int64_t row = token * args.columns;
  const TokenCounter counter = counter_of(keep, token);
  for (int64_t quad = threadIdx.x; 4 * quad < args.columns; quad += kThreads) {
    const int64_t count = args.columns - 4 * quad;
    auto values = load_chunk<Quad<T>>(args.x + row + 4 * quad, count, aligned);  // on its way while factors are drawn
    const KeepFactors factors = keep_factors(keep, counter, quad);
    for (int i = 0; i < 4; ++i) values.at[i] = narrow<T>(wide(values.at[i]) * factors.of[i]);
    store_chunk(args.y + row + 4 * quad, values, count, aligned);
  }
}

template <typename T>
__global__ void from_float_kernel(const float* from, T* to, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) to[i] = narrow<T>(from[i]);
}

}  // namespace

template <typename T>
int dropout(const DropoutArgs<T>& args, void* stream) {
  return launch(&dropout_kernel<T>, {args.tokens}, kThreads, stream, args, keep_of(args.dropout, args.index),
                are_aligned<Quad<T>>({args.columns}, args.x, args.y));
}

template <typename T>
int convert_from_float(const float* from, T* to, int64_t count, void* stream) {
  return launch(&from_float_kernel<T>, grid_of(count), kThreads, stream, from, to, count);
}

#define STRAKE_INSTANTIATE(T)                         \
  template int dropout(const DropoutArgs<T>&, void*); \
  template int convert_from_float(const float*, T*, int64_t, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
