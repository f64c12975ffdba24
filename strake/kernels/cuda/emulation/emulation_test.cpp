#include "strake/kernels/cuda/emulation/emulation.h"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "strake/kernels/cuda/emulation/tensor_core.cuh"

namespace strake::kernels::cuda::emulation::emulation_test {
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

uint16_t half_bits(unsigned value) { return to_half(static_cast<float>(value)).bits; }

// Rows and columns of a lane's elements as the PTX ISA gives them for mma.m16n8k16.
TEST(CudaEmulation, MultipliesFragmentsAsTensorCoresDo) {
  constexpr unsigned kRows = 16, kInner = 16, kColumns = 8;
  const auto left_value = [](unsigned row, unsigned k) { return (3 * row + 5 * k) % 11; };
  const auto right_value = [](unsigned k, unsigned column) { return (7 * k + 2 * column) % 13; };
  std::array<std::array<float, kColumns>, kRows> product{};
  run({1, 1}, 32, [&] {
    const unsigned group = threadIdx.x / 4, member = threadIdx.x % 4;
    uint32_t left[4] = {}, right[2] = {};
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      const unsigned k = 2 * member + (i & 1) + (i < 4 ? 0 : 8);
      left[i / 2] |= uint32_t{half_bits(left_value(row, k))} << (16 * (i % 2));
    }
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned k = 2 * member + (i & 1) + (i < 2 ? 0 : 8);
      right[i / 2] |= uint32_t{half_bits(right_value(k, group))} << (16 * (i % 2));
    }
    float sums[4] = {};
    multiply_add<Half>(sums, left, right);
    for (unsigned i = 0; i < 4; ++i) product[i < 2 ? group : group + 8][2 * member + (i & 1)] = sums[i];
  });
  for (unsigned row = 0; row < kRows; ++row) {
    for (unsigned column = 0; column < kColumns; ++column) {
      unsigned want = 0;
      for (unsigned k = 0; k < kInner; ++k) want += left_value(row, k) * right_value(k, column);
      EXPECT_EQ(product[row][column], want) << row << " " << column;
    }
  }
}

TEST(CudaEmulation, LoadsMatricesByTheRowsThatLanesPointAt) {
  alignas(16) uint16_t matrices[4][8][8];
  for (unsigned i = 0; i < 4 * 64; ++i) matrices[i / 64][i / 8 % 8][i % 8] = static_cast<uint16_t>(i);
  run({1, 1}, 32, [&] {
    const size_t group = threadIdx.x / 4, member = threadIdx.x % 4;
    uint32_t words[4], turned[4];
    load_matrices(words, matrices[threadIdx.x / 8][threadIdx.x % 8]);
    load_matrices_transposed(turned, matrices[threadIdx.x / 8][threadIdx.x % 8]);
    for (unsigned i = 0; i < 4; ++i) {
      const auto& matrix = matrices[i];
      EXPECT_EQ(words[i], matrix[group][2 * member] | uint32_t{matrix[group][2 * member + 1]} << 16);
      EXPECT_EQ(turned[i], matrix[2 * member][group] | uint32_t{matrix[2 * member + 1][group]} << 16);
    }
  });
}

TEST(CudaEmulation, RefusesAGridThatNoDeviceTakes) {
  const auto nothing = [] {};
  EXPECT_THROW(run({1, 65536}, 32, nothing), std::logic_error);
}

TEST(CudaEmulation, RefusesABlockInWhichAThreadMissesABarrier) {
  const auto all_but_one_wait = [] {
    if (threadIdx.x != 7) __syncthreads();
  };
  EXPECT_THROW(run({1, 1}, 32, all_but_one_wait), std::logic_error);
}

}  // namespace
}  // namespace strake::kernels::cuda::emulation::emulation_test
