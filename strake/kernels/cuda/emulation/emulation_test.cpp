#include "strake/kernels/cuda/emulation/emulation.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace strake::kernels::cuda::emulation {
namespace {

// What a thread with its right neighbour's number sees after the barrier.
std::vector<unsigned> neighbours(bool with_barrier) {
  std::vector<unsigned> seen(64), shared(64, 999);
  run({1, 1}, 64, [&] {
    shared[threadIdx.x] = threadIdx.x;
    if (with_barrier) __syncthreads();
    seen[threadIdx.x] = shared[(threadIdx.x + 1) % 64];
  });
  return seen;
}

TEST(CudaEmulation, RunsEveryThreadOfEveryBlock) {
  std::vector<int> visits(size_t{3} * 2 * 32);
  run({3, 2}, 32, [&] { ++visits[(blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x]; });
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
}

TEST(CudaEmulation, MakesThreadsWaitAtBarriers) {
  for (const Order order : {Order::kUp, Order::kDown}) {
    set_order(order);
    const auto seen = neighbours(true);
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(seen[i], (i + 1) % 64);
  }
  set_order(Order::kUp);
}

TEST(CudaEmulation, ShowsAMissingBarrierInOneOfTheOrders) {
  set_order(Order::kUp);
  EXPECT_NE(neighbours(false), neighbours(true));
}

TEST(CudaEmulation, ShufflesWithinWarps) {
  std::vector<double> sums(64);
  run({1, 1}, 64, [&] {
    double value = threadIdx.x;
    for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, lane);
    sums[threadIdx.x] = value;
  });
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(sums[i], i < 32 ? 496 : 1520);
}

TEST(CudaEmulation, RefusesABlockInWhichAThreadMissesABarrier) {
  const auto all_but_one_wait = [] {
    if (threadIdx.x != 7) __syncthreads();
  };
  EXPECT_THROW(run({1, 1}, 32, all_but_one_wait), std::logic_error);
}

}  // namespace
}  // namespace strake::kernels::cuda::emulation
