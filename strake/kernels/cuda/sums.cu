#include <cfloat>

#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"
#include "strake/kernels/global_norm.h"

// Sums over tokens are cut as on the CPU (token_chunks.h): chunks of tokens one after the other, then their sums in
// order. A thread has a column.
namespace strake::kernels::cuda {
namespace {

Grid chunks_and_columns(int64_t tokens, int64_t columns) {
  return {ceil_div(tokens, kTokenChunk), ceil_div(columns, kColumnThreads)};
}

template <typename T>
__global__ void column_sum_kernel(ColumnSumArgs<T> args, int64_t stride, float* partials) {
  const auto [begin, end] = chunk_of_block(args.tokens);
  const int64_t column = int64_t{blockIdx.y} * kColumnThreads + threadIdx.x;
  if (column >= args.columns) return;
  float sum = 0;
#pragma unroll 8
  for (int64_t t = begin; t < end; ++t) sum += wide(args.x[t * stride + column]);
  partials[blockIdx.x * args.columns + column] = sum;
}

constexpr int kPartialsAtOnce = 256;  // whose loads are under way together

// Adds each sum's partials in order; blockIdx.y says which sum. A block has a warp's columns: all its warps bring
// partials, the first adds them up.
__global__ void join_kernel(const float* partials, int64_t chunks, int64_t width, JoinedSums to) {
  constexpr int kWarps = kThreads / kWarp;
  constexpr int kPerWarp = kPartialsAtOnce / kWarps;
  __shared__ float brought[kPartialsAtOnce][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = int64_t{blockIdx.x} * kWarp + lane;
  const bool is_there = column < width;
  const float* const own = partials + int64_t{blockIdx.y} * chunks * width + column;
  float sum = 0;
  for (int64_t begin = 0; begin < chunks; begin += kPartialsAtOnce) {
    __syncthreads();  // before what was brought is overwritten
    float values[kPerWarp];
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      const int64_t c = begin + i * kWarps + warp;
      values[i] = is_there && c < chunks ? own[c * width] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) brought[i * kWarps + warp][lane] = values[i];
    __syncthreads();
    if (warp != 0) continue;
    const int64_t count = chunks - begin < kPartialsAtOnce ? chunks - begin : kPartialsAtOnce;
#pragma unroll 16
    for (int64_t c = 0; c < count; ++c) sum += brought[c][lane];
  }
  if (warp == 0 && is_there) (blockIdx.y == 0 ? to.out[0] : to.out[1])[column] = sum;
}

// Of e^(x - largest), of the x that a thread has seen. Begins with a finite number: +infinity must give a NaN.
struct SumOfExponentials {
  float largest = -FLT_MAX;
  float sum = 0;
  float of_logits = 0;  // the sum of x

  __device__ void take(float x) {
    of_logits += x;
    if (x > largest) {
      sum *= exp2_approximately((largest - x) * kLog2E);
      largest = x;
    }
    sum += exp2_approximately((x - largest) * kLog2E);
  }
};

// A block has a token. The gradient may go over the logits.
template <typename T>
__global__ void cross_entropy_kernel(CrossEntropyArgs<T> args, bool aligned) {
  __shared__ float shared[3][kThreads / kWarp];
  constexpr int kCount = Chunk<T>::kCount;
  const int64_t token = blockIdx.x;
  const T* const x = args.logits + token * args.stride;
  const int32_t target = args.targets[token];
  SumOfExponentials own;
  for (int64_t c = kCount * threadIdx.x; c < args.classes; c += kCount * kThreads) {
    const auto chunk = load_chunk<Chunk<T>>(x + c, args.classes - c, aligned);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (c + i < args.classes) own.take(wide(chunk.at[i]));
    }
  }
  const float largest = block_max(own.largest, shared[0]);
  const float sum = block_sum(own.sum * exp2_approximately((own.largest - largest) * kLog2E), shared[1]);
  const float share = args.smoothing / static_cast<float>(args.classes);
  const float of_logits = args.smoothing == 0 ? 0 : share * block_sum(own.of_logits, shared[2]);
  if (threadIdx.x == 0) {
    const float of_target = largest - wide(x[target]);
    args.nll[token] =
        logf(sum) +
        (args.smoothing == 0 ? of_target : (1 - args.smoothing) * of_target + (args.smoothing * largest - of_logits));
  }
  if (args.gradient == nullptr) return;
  __syncthreads();  // the target's logit was read
  T* const gradient = args.gradient + token * args.stride;
  const float inverse = 1.0F / sum;
  for (int64_t c = kCount * threadIdx.x; c < args.classes; c += kCount * kThreads) {
    const auto chunk = load_chunk<Chunk<T>>(x + c, args.classes - c, aligned);
    Chunk<T> out;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float probability = exp2_approximately((wide(chunk.at[i]) - largest) * kLog2E) * inverse;
      out.at[i] = narrow<T>(args.scale * (probability - share - (c + i == target ? 1.0F - args.smoothing : 0.0F)));
    }
    store_chunk(gradient + c, out, args.classes - c, aligned);
  }
}

template <typename T>
__global__ void squares_kernel(const T* x, int64_t count, double* partial) {
  __shared__ double shared[kThreads / kWarp];
  const int64_t begin = int64_t{blockIdx.x} * kSquaresChunk;
  const int64_t end = begin + kSquaresChunk < count ? begin + kSquaresChunk : count;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const double value = wide(x[i]);
    sum += value * value;
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

}  // namespace

int join_partials(const float* partials, int64_t chunks, int64_t width, const JoinedSums& to, void* stream) {
  return launch(&join_kernel, {ceil_div(width, kWarp), to.count}, kThreads, stream, partials, chunks, width, to);
}

template <typename T>
int column_sum(const ColumnSumArgs<T>& args, void* stream) {
  const Grid grid = chunks_and_columns(args.tokens, args.columns);
  const Workspace<float> partials(grid.x * args.columns, stream);
  if (partials.error() != 0) return partials.error();
  const int64_t stride = args.stride == 0 ? args.columns : args.stride;
  const int error = launch(&column_sum_kernel<T>, grid, kColumnThreads, stream, args, stride, partials.data());
  return error != 0 ? error : join_partials(partials.data(), grid.x, args.columns, {1, {args.out}}, stream);
}

template <typename T>
int cross_entropy(const CrossEntropyArgs<T>& args, void* stream) {
  return launch(&cross_entropy_kernel<T>, {args.tokens}, kThreads, stream, args,
                are_aligned<Chunk<T>>({args.stride}, args.logits, args.gradient));
}

template <typename T>
int sum_of_squares(const T* x, int64_t count, double* partial, void* stream) {
  return launch(&squares_kernel<T>, {num_squares_chunks(count)}, kThreads, stream, x, count, partial);
}

#define STRAKE_INSTANTIATE(T)                                    \
  template int column_sum(const ColumnSumArgs<T>&, void*);       \
  template int cross_entropy(const CrossEntropyArgs<T>&, void*); \
  template int sum_of_squares(const T*, int64_t, double*, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
