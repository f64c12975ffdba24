#include "strake/tensors/tracked_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace strake::tensors::tracked_memory_test {
namespace {

constexpr int64_t kMebibyte = 1 << 20;
constexpr double kRounding = 16384;  // malloc rounds sizes up

TEST(TrackedMemory, CountsWhatTensorsHoldAndTheMostTheyHeld) {
  track_tensor_memory();
  const int64_t before = tracked_bytes();
  reset_peak_tracked_bytes();
  {
    const at::Tensor kept = at::empty({kMebibyte}, at::kFloat);
    at::ones({kMebibyte}, at::kByte);
    EXPECT_NEAR(tracked_bytes() - before, 4 * kMebibyte, kRounding);
    EXPECT_NEAR(peak_tracked_bytes() - before, 5 * kMebibyte, kRounding);
    const at::Tensor view = kept.narrow(0, 0, 10);
    EXPECT_NEAR(tracked_bytes() - before, 4 * kMebibyte, kRounding) << "views hold nothing of their own";
  }
  EXPECT_EQ(tracked_bytes(), before);
  reset_peak_tracked_bytes();
  EXPECT_EQ(peak_tracked_bytes(), before);
}

TEST(TrackedMemory, AddsUpOverThreads) {
  track_tensor_memory();
  const int64_t before = tracked_bytes();
  std::vector<at::Tensor> tensors(4);
  reset_peak_tracked_bytes_of_thread();
  {
    std::vector<std::jthread> threads;
    for (at::Tensor& tensor : tensors) {
      threads.emplace_back([&tensor] {
        for (int i = 0; i < 1000; ++i) at::empty({i}, at::kFloat);
        tensor = at::empty({kMebibyte}, at::kByte);
      });
    }
  }
  EXPECT_NEAR(tracked_bytes() - before, 4 * kMebibyte, kRounding);
  EXPECT_EQ(peak_tracked_bytes_of_thread(), 0) << "other threads allocated";
  tensors.clear();
  EXPECT_EQ(tracked_bytes(), before);
}

}  // namespace
}  // namespace strake::tensors::tracked_memory_test
