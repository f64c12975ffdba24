#include "strake/kernels/cuda/activation.cuh"
#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"
#include "strake/kernels/global_norm.h"

// Sums over tokens are cut as on the CPU (token_chunks.h): chunks of tokens one after the other, then their sums in
// order. A thread has a column.
namespace strake::kernels::cuda {
namespace {

constexpr int64_t kTokenChunk = 64;
constexpr int kColumnThreads = 128;

Grid chunks_and_columns(int64_t tokens, int64_t columns) {
  return {ceil_div(tokens, kTokenChunk), ceil_div(columns, kColumnThreads)};
}

// The tokens of a block, and its thread's column.
struct Place {
  int64_t begin;
  int64_t end;
  int64_t column;
};
__device__ Place place_of(int64_t tokens) {
  const int64_t begin = int64_t{blockIdx.x} * kTokenChunk;
  const int64_t end = begin + kTokenChunk;
  return {begin, end < tokens ? end : tokens, int64_t{blockIdx.y} * kColumnThreads + threadIdx.x};
}

template <typename T>
__global__ void column_sum_kernel(ColumnSumArgs<T> args, int64_t stride, float* partials) {
  const Place place = place_of(args.tokens);
  if (place.column >= args.columns) return;
  float sum = 0;
  for (int64_t t = place.begin; t < place.end; ++t) sum += to_float(args.x[t * stride + place.column]);
  partials[blockIdx.x * args.columns + place.column] = sum;
}

template <typename T>
__global__ void bias_activation_backward_kernel(BiasActivationBackward<T> args, float* partials) {
  const Place place = place_of(args.tokens);
  if (place.column >= args.columns) return;
  float sum = 0;
  for (int64_t t = place.begin; t < place.end; ++t) {
    const int64_t row = t * args.columns;
    const float x = biased(args.x, args.bias, row, place.column);
    const float dx = to_float(args.dy[row + place.column]) * activation_derivative(args.activation, x);
    args.dx[row + place.column] = from_float<T>(dx);
    sum += dx;
  }
  if (partials != nullptr) partials[blockIdx.x * args.columns + place.column] = sum;
}

__global__ void join_kernel(const float* partials, int64_t chunks, int64_t width, float* out) {
  const int64_t column = int64_t{blockIdx.x} * kColumnThreads + threadIdx.x;
  if (column >= width) return;
  float sum = 0;
  for (int64_t c = 0; c < chunks; ++c) sum += partials[c * width + column];
  out[column] = sum;
}

// A block has a token. The gradient may go over the logits.
template <typename T>
__global__ void cross_entropy_kernel(CrossEntropyArgs<T> args) {
  __shared__ float shared[2][kThreads / kWarp];
  const int64_t token = blockIdx.x;
  const T* const x = args.logits + token * args.classes;
  const int32_t target = args.targets[token];
  float largest = -INFINITY;
  for (int64_t c = threadIdx.x; c < args.classes; c += kThreads) largest = fmaxf(largest, to_float(x[c]));
  largest = block_max(largest, shared[0]);
  float sum = 0;
  for (int64_t c = threadIdx.x; c < args.classes; c += kThreads) sum += expf(to_float(x[c]) - largest);
  sum = block_sum(sum, shared[1]);
  if (threadIdx.x == 0) args.nll[token] = logf(sum) + (largest - to_float(x[target]));
  if (args.gradient == nullptr) return;
  __syncthreads();  // the target's logit was read
  T* const gradient = args.gradient + token * args.classes;
  const float inverse = 1.0F / sum;
  for (int64_t c = threadIdx.x; c < args.classes; c += kThreads) {
    const float probability = expf(to_float(x[c]) - largest) * inverse;
    gradient[c] = from_float<T>(args.scale * (probability - (c == target ? 1.0F : 0.0F)));
  }
}

template <typename T>
__global__ void squares_kernel(const T* x, int64_t count, double* partial) {
  __shared__ double shared[kThreads / kWarp];
  const int64_t begin = int64_t{blockIdx.x} * kSquaresChunk;
  const int64_t end = begin + kSquaresChunk < count ? begin + kSquaresChunk : count;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const double value = to_float(x[i]);
    sum += value * value;
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

}  // namespace

int join_partials(const float* partials, int64_t chunks, int64_t width, float* out, void* stream) {
  return launch(&join_kernel, {ceil_div(width, kColumnThreads)}, kColumnThreads, stream, partials, chunks, width, out);
}

template <typename T>
int column_sum(const ColumnSumArgs<T>& args, void* stream) {
  const Grid grid = chunks_and_columns(args.tokens, args.columns);
  const Workspace<float> partials(grid.x * args.columns, stream);
  if (partials.error() != 0) return partials.error();
  const int64_t stride = args.stride == 0 ? args.columns : args.stride;
  const int error = launch(&column_sum_kernel<T>, grid, kColumnThreads, stream, args, stride, partials.data());
  return error != 0 ? error : join_partials(partials.data(), grid.x, args.columns, args.out, stream);
}

template <typename T>
int bias_activation_backward(const BiasActivationBackward<T>& args, void* stream) {
  const Grid grid = chunks_and_columns(args.tokens, args.columns);
  const Workspace<float> partials(args.dbias == nullptr ? 0 : grid.x * args.columns, stream);
  if (partials.error() != 0) return partials.error();
  const int error = launch(&bias_activation_backward_kernel<T>, grid, kColumnThreads, stream, args, partials.data());
  if (error != 0 || args.dbias == nullptr) return error;
  return join_partials(partials.data(), grid.x, args.columns, args.dbias, stream);
}

template <typename T>
int cross_entropy(const CrossEntropyArgs<T>& args, void* stream) {
  return launch(&cross_entropy_kernel<T>, {args.tokens}, kThreads, stream, args);
}

template <typename T>
int sum_of_squares(const T* x, int64_t count, double* partial, void* stream) {
  return launch(&squares_kernel<T>, {num_squares_chunks(count)}, kThreads, stream, x, count, partial);
}

#define STRAKE_INSTANTIATE(T)                                                     \
  template int column_sum(const ColumnSumArgs<T>&, void*);                        \
  template int bias_activation_backward(const BiasActivationBackward<T>&, void*); \
  template int cross_entropy(const CrossEntropyArgs<T>&, void*);                  \
  template int sum_of_squares(const T*, int64_t, double*, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
