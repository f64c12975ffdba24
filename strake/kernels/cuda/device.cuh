#pragma once

// What all CUDA kernels of this folder share. CMake chooses arithmetic.cuh and runtime.cuh: nvcc's for devices, or for
// tests the emulation's, with which the host's compiler takes this source too.
#include "arithmetic.cuh"
#include "runtime.cuh"

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "strake/core/philox.h"
#include "strake/kernels/dropout.h"
#include "strake/kernels/half.h"

namespace strake::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;        // of a block, where nothing else is said
inline constexpr int kColumnThreads = 128;  // of a block whose threads have columns
inline constexpr int64_t kTokenChunk = 64;  // of sums over tokens, as on the CPU (token_chunks.h)
inline constexpr float kLog2E = 1.44269504088896340736F;

// Memory of the device for work on one stream, which other work gets when that is done.
template <typename T>
class Workspace {
 public:
  Workspace(int64_t count, void* stream) : stream_(static_cast<cudaStream_t>(stream)) {
    if (count > 0) error_ = cudaMallocAsync(&memory_, static_cast<size_t>(count) * sizeof(T), stream_);
    if (error_ != cudaSuccess) cudaGetLastError();  // or others take it for one of their launches
  }
  ~Workspace() {
    if (memory_ != nullptr) cudaFreeAsync(memory_, stream_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  int error() const { return static_cast<int>(error_); }
  T* data() const { return static_cast<T*>(memory_); }

 private:
  cudaStream_t stream_;
  void* memory_ = nullptr;
  cudaError_t error_ = cudaSuccess;
};

// Elements that a thread loads or stores at once: 16 bytes of them if nothing else is said.
template <typename T, int kCount_ = 16 / static_cast<int>(sizeof(T))>
struct alignas(kCount_ * sizeof(T)) Chunk {
  static constexpr int kCount = kCount_;
  T at[kCount];
};
template <typename T>
using Pair = Chunk<T, 2>;
template <typename T>
using Quad = Chunk<T, 4>;

// Whether chunks of rows lie on whole chunks: `sizes` are those of rows and what is between them, in elements.
template <typename Chunk, typename... Pointers>
bool are_aligned(std::initializer_list<int64_t> sizes, Pointers... pointers) {
  for (const int64_t size : sizes) {
    if (size % Chunk::kCount != 0) return false;
  }
  return ((reinterpret_cast<uintptr_t>(pointers) % sizeof(Chunk) == 0) && ...);
}

// The first `count` elements at `from`, of those that a chunk has, then zeros. `aligned` as are_aligned() says.
template <typename Chunk, typename T>
__device__ Chunk load_chunk(const T* from, int64_t count, bool aligned) {
  if (aligned && count > 0) return *reinterpret_cast<const Chunk*>(from);
  Chunk chunk{};
#pragma unroll
  for (int i = 0; i < Chunk::kCount; ++i) {
    if (i < count) chunk.at[i] = from[i];
  }
  return chunk;
}
template <typename T, int kCount>
__device__ void store_chunk(T* to, const Chunk<T, kCount>& chunk, int64_t count, bool aligned) {
  if (aligned && count > 0) {
    *reinterpret_cast<Chunk<T, kCount>*>(to) = chunk;
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < count) to[i] = chunk.at[i];
  }
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Tokens [begin, end) of the blockIdx.x-th chunk of `size`.
struct TokenChunk {
  int64_t begin;
  int64_t end;
};
__device__ inline TokenChunk chunk_of_block(int64_t tokens, int64_t size = kTokenChunk) {
  const int64_t begin = int64_t{blockIdx.x} * size;
  const int64_t end = begin + size;
  return {begin, end < tokens ? end : tokens};
}

// KeepRule for devices; the host has checked it.
struct Keep {
  PhiloxKey key;
  uint32_t site;
  uint32_t threshold;
  float scale;
  bool active;
  TokenIndex index;
};

inline Keep keep_of(const Dropout& dropout, const TokenIndex& index) {
  return {dropout.key, dropout.site, dropout_threshold(dropout.p), 1.0F / (1.0F - dropout.p), dropout.p > 0, index};
}

// What all counters of a token have.
struct TokenCounter {
  uint32_t position;
  uint32_t row;
  uint32_t site_and_row;
};
__device__ inline TokenCounter counter_of(const Keep& keep, int64_t token) {
  if (!keep.active) return {};
  const auto row = static_cast<uint64_t>(keep.index.row[token]);
  return {static_cast<uint32_t>(keep.index.position[token]), static_cast<uint32_t>(row),
          keep.site | (static_cast<uint32_t>(row >> 32) << 16)};
}

// Bit i: whether element 4 quad + i of a token is kept. Only where dropout is active.
__device__ inline uint32_t kept_of_quad(const Keep& keep, const TokenCounter& token, int64_t quad) {
  const PhiloxBlock words =
      philox(keep.key, {static_cast<uint32_t>(quad), token.position, token.row, token.site_and_row});
  uint32_t kept = 0;
  for (unsigned i = 0; i < 4; ++i) kept |= (words[i] >= keep.threshold ? 1U : 0U) << i;
  return kept;
}

// Factors of elements [4 quad, 4 quad + 4) of a token.
struct KeepFactors {
  float of[4];
};
__device__ inline KeepFactors keep_factors(const Keep& keep, const TokenCounter& token, int64_t quad) {
  if (!keep.active) return {{1.0F, 1.0F, 1.0F, 1.0F}};
  const uint32_t kept = kept_of_quad(keep, token, quad);
  KeepFactors factors;
  for (unsigned i = 0; i < 4; ++i) factors.of[i] = (kept >> i & 1U) != 0 ? keep.scale : 0.0F;
  return factors;
}

template <typename T>
__device__ T warp_sum(T value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, lane);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, lane));
  return value;
}

// Over the kCount threads of a block, all of which call; every thread gets the result. `shared` has kCount / kWarp
// elements and may be used again after the next __syncthreads().
template <int kCount = kThreads, typename T>
__device__ T block_sum(T value, T* shared) {
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  T sum = 0;
  for (int warp = 0; warp < kCount / kWarp; ++warp) sum += shared[warp];
  return sum;
}
__device__ inline float block_max(float value, float* shared) {
  value = warp_max(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float largest = shared[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) largest = fmaxf(largest, shared[warp]);
  return largest;
}

}  // namespace strake::kernels::cuda
