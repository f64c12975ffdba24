// The plan of a GPU's memory against what libtorch's allocator was asked for.
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "strake/training/memory_plan_case.h"
#include "tests/gpu/gpu.h"

namespace strake::training::memory_plan_test {
namespace {

// What small tensors add.
constexpr double kTolerance = 0.03;

c10::DeviceAllocator& allocator() { return *c10::getDeviceAllocator(at::kCUDA); }

c10::CachingDeviceAllocator::Stat requested() {
  return allocator().getDeviceStats(0).requested_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

int64_t workspace(const MemoryPlan& plan) { return plan.rank[static_cast<size_t>(models::MemoryUse::kLibraries)]; }

// Without cuBLAS's workspace, which would hide what small models take.
double deviation(const Case& test) {
  const MemoryPlan plan = plan_of(test);
  const auto planned = static_cast<double>(plan.rank_bytes() - workspace(plan));
  const int64_t before = requested().current;
  const auto measured = static_cast<double>(
      measured_peak(test, [] { allocator().resetPeakStats(0); }, [] { return requested().peak; }) - before);
  if (std::getenv("STRAKE_PRINT_MEMORY") != nullptr) {
    fmt::print("{:<50} planned {:8.3f} MiB, measured {:8.3f} MiB, {:+.2f} %\n", test.text(), planned / 1048576,
               measured / 1048576, 100 * (planned / measured - 1));
  }
  return planned / measured - 1;
}

class PlannedGpuMemory : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "skipped: no GPU";
    open_gpu();
    measured_peak(own({}), [] {}, [] { return int64_t{0}; });  // cuBLAS takes its workspace
  }
  static Case own(Case test) {
    test.family = GetParam();
    test.size = 2;
    test.on_gpu = true;
    return test;
  }
  static void expect_planned(Case test) {
    test = own(std::move(test));
    for (const bool recompute : {false, true}) {
      test.recompute = recompute;
      EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
    }
  }
};

TEST_P(PlannedGpuMemory, IsThatOfSteps) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    for (const ShardingStage& stage : {kZero0, kZero3}) expect_planned({.stage = stage, .precision = precision});
    expect_planned({.precision = precision, .accumulation = 2});
    expect_planned({.precision = precision, .sequences = 40});
    expect_planned({.precision = precision, .dropout = 0});
  }
}

TEST_P(PlannedGpuMemory, CountsSumsAndMastersInOtherTypes) {
  expect_planned({.precision = Precision::kBf16, .accumulation = 2, .reduction = Precision::kBf16});
  expect_planned({.precision = Precision::kBf16,
                  .accumulation = 2,
                  .reduction = Precision::kBf16,
                  .sum = Precision::kBf16,
                  .master = Precision::kBf16});
}

TEST_P(PlannedGpuMemory, IsLessWhatTheHostHas) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    expect_planned({.stage = kZero2, .precision = precision, .host = OnHost::kStates});
    expect_planned({.stage = kZero3, .precision = precision, .host = OnHost::kParameters});
    expect_planned({.stage = kZero3, .precision = precision, .host = OnHost::kAll});
    expect_planned({.stage = kZero3, .precision = precision, .disk = OnDisk::kStates});
    expect_planned({.stage = kZero3, .precision = precision, .disk = OnDisk::kAll});
    expect_planned({.precision = precision, .inputs_on_host = true});
  }
}

TEST_P(PlannedGpuMemory, IsThatOfAnEvaluation) {
  expect_planned({.sequences = 4, .evaluated = 100});
  expect_planned({.precision = Precision::kBf16, .evaluated = 100, .async_save = true});
}

TEST_P(PlannedGpuMemory, IsLessWhatIsFrozen) {
  const bool is_gpt2 = std::string_view(GetParam()) == "gpt2";
  expect_planned(
      {.frozen = {.freeze = is_gpt2 ? "*.wpe.*,*.h.[0-1].*" : "*.embeddings.*,*.layer.[0-1].*", .train_only = ""}});
  expect_planned({.precision = Precision::kBf16, .frozen = {.freeze = "", .train_only = "*.bias"}});
}

INSTANTIATE_TEST_SUITE_P(Families, PlannedGpuMemory,
                         testing::Values("bert", "roberta", "distilbert", "gpt2", "masked", "tokens", "answers"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PlannedGpuMemoryOfCublas, IsItsWorkspace) {
  if (!has_gpu()) GTEST_SKIP() << "skipped: no GPU";
  open_gpu();
  const Case test{.size = 2, .on_gpu = true};
  measured_peak(test, [] {}, [] { return int64_t{0}; });
  const int64_t planned = workspace(plan_of(test));
  EXPECT_LE(requested().current, planned);
  if (std::getenv("STRAKE_PRINT_MEMORY") != nullptr) {
    fmt::print("workspace: planned {}, measured {} bytes\n", planned, requested().current);
  }
}

}  // namespace
}  // namespace strake::training::memory_plan_test
