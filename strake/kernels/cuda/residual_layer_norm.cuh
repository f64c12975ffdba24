#pragma once

#include "strake/kernels/cuda/device.cuh"
#include "strake/kernels/cuda/launchers.cuh"

// Who has which part of the rows that layer norm reads.
namespace strake::kernels::cuda {

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

// use.template operator()<Team>()
template <typename Use>
int with_team(int64_t columns, const Use& use) {
  if (columns <= Team<kWarp>::kMostColumns) return use.template operator()<Team<kWarp>>();
  if (columns <= Team<256>::kMostColumns) return use.template operator()<Team<256>>();
  if (columns <= Team<1024>::kMostColumns) return use.template operator()<Team<1024>>();
  return static_cast<int>(cudaErrorInvalidValue);
}
static_assert(Team<1024>::kMostColumns == kMostNormColumns);

}  // namespace strake::kernels::cuda
