#include "strake/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "strake/core/error.h"

namespace strake::optim::loss_scaler_test {
namespace {

struct Case {
  std::string name;
  LossScaling settings;
  std::string steps;           // o: the gradient overflows
  std::vector<double> scales;  // after each step; the last step fails if there is one fewer
};

// Scales by DynamicLossScaler.update_scale of deepspeed/runtime/fp16/loss_scaler.py (DeepSpeed 18fd4c97).
std::vector<Case> cases() {
  const auto dynamic = [](int64_t power, int64_t window, int64_t hysteresis, bool consecutive, double minimum) {
    return LossScaling{.initial_scale_power = power,
                       .loss_scale_window = window,
                       .hysteresis = hysteresis,
                       .consecutive_hysteresis = consecutive,
                       .min_loss_scale = minimum};
  };
  return {
      {"Defaults", {}, "oooo.o", {65536, 32768, 16384, 8192, 8192, 4096}},
      {"Window",
       dynamic(4, 3, 1, false, 1),
       "..........o.....",
       {16, 16, 16, 32, 32, 32, 64, 64, 64, 128, 64, 64, 64, 64, 128, 128}},
      {"Hysteresis",
       dynamic(8, 2, 3, false, 1),
       "oooo..o...ooo",
       {256, 256, 128, 64, 64, 64, 32, 32, 32, 64, 64, 64, 32}},
      {"ConsecutiveHysteresis",
       dynamic(8, 4, 2, true, 1),
       "o.o.oo.oo.o......oo",
       {256, 256, 256, 256, 256, 128, 128, 128, 64, 64, 64, 64, 64, 64, 64, 128, 128, 128, 64}},
      {"HysteresisThatIsNotConsecutive",
       dynamic(8, 4, 2, false, 1),
       "o.o.oo.oo.o......oo",
       {256, 256, 128, 128, 64, 32, 32, 16, 8, 8, 4, 4, 4, 4, 4, 8, 8, 8, 4}},
      {"Minimum", dynamic(2, 1000, 1, false, 1), "ooo", {2, 1}},
      {"MinimumWithHysteresis", dynamic(1, 1000, 2, false, 1), "ooo", {2, 1}},
      {"MinimumThatIsNoPowerOfTwo", dynamic(3, 1000, 1, false, 3), "oo.o", {4, 3, 3}},
  };
}

class DynamicLossScale : public testing::TestWithParam<Case> {};

TEST_P(DynamicLossScale, FollowsTheRulesOfDeepSpeed) {
  const Case& expected = GetParam();
  LossScaler scaler(expected.settings);
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const bool overflowed = expected.steps[i] == 'o';
    if (i == expected.scales.size()) {
      EXPECT_THROW(scaler.update(overflowed), Error) << "step " << i;
      return;
    }
    scaler.update(overflowed);
    EXPECT_EQ(scaler.scale(), expected.scales[i]) << "after step " << i;
  }
}

TEST_P(DynamicLossScale, GoesOnFromASavedState) {
  const Case& expected = GetParam();
  for (size_t saved_at = 0; saved_at < expected.scales.size(); ++saved_at) {
    LossScaler first(expected.settings);
    for (size_t i = 0; i < saved_at; ++i) first.update(expected.steps[i] == 'o');
    LossScaler second(expected.settings);
    second.restore(first.state());
    for (size_t i = saved_at; i < expected.scales.size(); ++i) {
      second.update(expected.steps[i] == 'o');
      EXPECT_EQ(second.scale(), expected.scales[i]) << "saved at step " << saved_at << ", after step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, DynamicLossScale, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(StaticLossScale, NeverChanges) {
  LossScaler scaler({.loss_scale = 128});
  for (const bool overflowed : {false, true, true, true, false}) {
    scaler.update(overflowed);
    EXPECT_EQ(scaler.scale(), 128);
  }
  scaler.restore({.scale = 1024});
  EXPECT_EQ(scaler.scale(), 128) << "the settings decide, not the checkpoint";
}

}  // namespace
}  // namespace strake::optim::loss_scaler_test
