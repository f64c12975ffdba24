#include "strake/training/offloaded_states.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>

#include "strake/core/threads.h"

namespace strake::training::offloaded_states_test {
namespace {

constexpr std::array<int64_t, 4> kCounts{5000, 0, 12345, 7};

class OffloadedStatesOf : public testing::TestWithParam<std::pair<int64_t, int>> {
 protected:
  OffloadedStates states_{kCounts,
                          {at::kFloat, at::kFloat, at::kFloat},
                          {.folder = std::filesystem::temp_directory_path(),
                           .window_elements = GetParam().first,
                           .buffers = GetParam().second,
                           .file = {.depth = 2, .block_bytes = 4096}}};
};

TEST_P(OffloadedStatesOf, BeginAsZerosAndKeepWhatIsWritten) {
  EXPECT_TRUE(states_.read(2, 1).equal(at::zeros({kCounts[2]})));
  const at::Tensor values = at::arange(kCounts[2]).to(at::kFloat);
  states_.write(2, 1, values);
  EXPECT_TRUE(states_.read(2, 1).equal(values));
  EXPECT_TRUE(states_.read(2, 0).equal(at::zeros({kCounts[2]}))) << "its neighbours are untouched";
  EXPECT_TRUE(states_.read(2, 2).equal(at::zeros({kCounts[2]})));
}

TEST_P(OffloadedStatesOf, AreUpdatedElementByElementInEachPass) {
  set_num_threads(3);
  for (int pass = 1; pass <= 3; ++pass) {
    std::atomic<int64_t> seen = 0;
    states_.update_all([&](const OffloadedStates::Window& window, std::span<void* const> arrays) {
      seen += window.count;
      auto* counter = static_cast<float*>(arrays[0]);
      auto* sum = static_cast<float*>(arrays[1]);
      auto* last = static_cast<float*>(arrays[2]);
      for (int64_t i = 0; i < window.count; ++i) {
        counter[i] += 1;
        sum[i] += static_cast<float>(window.begin + i);
        last[i] = counter[i] * 10 + static_cast<float>(window.unit);
      }
    });
    EXPECT_EQ(seen, kCounts[0] + kCounts[2] + kCounts[3]);
  }
  for (const size_t unit : {size_t{0}, size_t{2}, size_t{3}}) {
    const at::Tensor index = at::arange(kCounts[unit]).to(at::kFloat);
    EXPECT_TRUE(states_.read(unit, 0).equal(at::zeros({kCounts[unit]}) + 3));
    EXPECT_TRUE(states_.read(unit, 1).equal(index * 3));
    EXPECT_TRUE(states_.read(unit, 2).equal(at::zeros({kCounts[unit]}) + 30 + static_cast<int64_t>(unit)));
  }
}

TEST(OffloadedStates, ReadArraysOfTwoByteElementsStraightIntoMemory) {
  OffloadedStates states(kCounts, {at::kFloat, at::kBFloat16},
                         {.folder = std::filesystem::temp_directory_path(), .window_elements = 2048});
  const at::Tensor values = at::arange(kCounts[2]).to(at::kBFloat16);
  states.write(2, 1, values);
  const size_t bytes = (static_cast<size_t>(kCounts[2]) * 2 / ScratchFile::kAlignment + 1) * ScratchFile::kAlignment;
  const AlignedBytes memory = allocate_aligned(bytes);
  states.read_into(2, 1, memory.get());
  EXPECT_EQ(std::memcmp(memory.get(), values.const_data_ptr(), static_cast<size_t>(kCounts[2]) * 2), 0);
}

INSTANTIATE_TEST_SUITE_P(Windows, OffloadedStatesOf,
                         testing::Values(std::pair{2048, 2}, std::pair{2048, 3}, std::pair{4096, 4},
                                         std::pair{1 << 20, 8}),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "Elements" + std::to_string(info.param.second) +
                                  "Buffers";
                         });

}  // namespace
}  // namespace strake::training::offloaded_states_test
