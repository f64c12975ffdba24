#include "strake/kernels/adamw.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "strake/core/error.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels {
namespace {

constexpr int64_t kCount = 50021;  // several grains of 16384 and an odd end

struct State {
  std::vector<float> p = random_values<float>(kCount, 1);
  std::vector<float> m = random_values<float>(kCount, 2, 0.01F);
  std::vector<float> v = random_values<float>(kCount, 3, 0.01F);
  std::vector<BFloat16> rounded = std::vector<BFloat16>(kCount);
  State() {
    for (float& value : v) value *= value;
  }
};

const std::vector<WeightDecaySegment> kDecay{{3, 17001, 0.1F}, {17001, 17020, 0.0F}, {20000, 49999, 0.3F}};

AdamW arguments(State& s, const std::vector<float>& gradients, int64_t step) {
  return {.parameters = s.p.data(),
          .gradients = gradients.data(),
          .exp_avg = s.m.data(),
          .exp_avg_sq = s.v.data(),
          .rounded = s.rounded.data(),
          .count = kCount,
          .learning_rate = 0.01,
          .beta1 = 0.9,
          .beta2 = 0.98,
          .epsilon = 1e-6,
          .step = step,
          .gradient_scale = 0.5F,
          .decay = kDecay};
}

struct Doubles {
  std::vector<double> p, m, v;
};

// torch.optim.AdamW in double, for one step.
void torch_step(Doubles& s, const std::vector<float>& gradients, int step) {
  for (size_t i = 0; i < s.p.size(); ++i) {
    double decay = 0;
    for (const WeightDecaySegment& segment : kDecay) {
      const auto at = static_cast<int64_t>(i);
      if (at >= segment.begin && at < segment.end) decay = double{segment.weight_decay};
    }
    const double g = 0.5 * double{gradients[i]};
    s.p[i] *= 1 - 0.01 * decay;
    s.m[i] = 0.9 * s.m[i] + 0.1 * g;
    s.v[i] = 0.98 * s.v[i] + 0.02 * g * g;
    const double denominator = std::sqrt(s.v[i]) / std::sqrt(1 - std::pow(0.98, step)) + 1e-6;
    s.p[i] -= 0.01 / (1 - std::pow(0.9, step)) * s.m[i] / denominator;
  }
}

TEST(AdamWKernel, FollowsTorchOverStepsInEveryRung) {
  const auto gradients = random_values<float>(kCount, 4, 0.1F);
  const State start;
  Doubles want{doubles(start.p), doubles(start.m), doubles(start.v)};
  for (int step = 1; step <= 3; ++step) torch_step(want, gradients, step);
  for (const Isa isa : usable_rungs()) {
    State s;
    for (int step = 1; step <= 3; ++step) adamw(arguments(s, gradients, step), isa);
    // A dozen fp32 roundings a step. A step moves a parameter by up to 0.01 |m| / sqrt(v) / (1 - beta1) ~ 1.
    expect_close(s.p, want.p, 1e-6, 1e-6, to_string(isa));
    expect_close(s.m, want.m, 1e-8, 1e-6, to_string(isa));
    expect_close(s.v, want.v, 1e-10, 1e-6, to_string(isa));
    for (size_t i = 0; i < s.p.size(); ++i) ASSERT_EQ(s.rounded[i].bits, to_bfloat16(s.p[i]).bits) << i;
  }
}

TEST(AdamWKernel, HasTheSameBitsForAnyNumberOfThreadsAndShards) {
  const auto gradients = random_values<float>(kCount, 4, 0.1F);
  for (const Isa isa : usable_rungs()) {
    const WithThreads one(1);
    State want;
    adamw(arguments(want, gradients, 1), isa);
    for (const int threads : {2, 3}) {
      const WithThreads several(threads);
      State got;
      adamw(arguments(got, gradients, 1), isa);
      EXPECT_TRUE(same_bits(got.p, want.p) && same_bits(got.m, want.m) && same_bits(got.v, want.v)) << to_string(isa);
    }
    State halves;
    AdamW first = arguments(halves, gradients, 1);
    first.count = 21003;
    const std::vector<WeightDecaySegment> low{kDecay[0], kDecay[1], {20000, 21003, 0.3F}};
    first.decay = low;
    adamw(first, isa);
    AdamW second = arguments(halves, gradients, 1);
    second.parameters += 21003, second.gradients += 21003, second.exp_avg += 21003, second.exp_avg_sq += 21003;
    second.rounded = nullptr;
    second.count -= 21003;
    const std::vector<WeightDecaySegment> high{{0, 49999 - 21003, 0.3F}};
    second.decay = high;
    adamw(second, isa);
    EXPECT_TRUE(same_bits(halves.p, want.p)) << to_string(isa);
  }
}

TEST(AdamWKernel, LetsNanThroughAndRefusesNonsense) {
  auto gradients = random_values<float>(kCount, 4, 0.1F);
  gradients[20] = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : usable_rungs()) {
    State s;
    adamw(arguments(s, gradients, 1), isa);
    EXPECT_TRUE(std::isnan(s.p[20]) && std::isnan(s.m[20]) && std::isnan(s.v[20])) << to_string(isa);
    EXPECT_TRUE(std::isfinite(s.p[19]) && std::isfinite(s.p[21])) << to_string(isa);
  }
  State s;
  AdamW args = arguments(s, gradients, 0);
  EXPECT_THROW(adamw(args), Error);
  args.step = 1;
  const std::vector<WeightDecaySegment> overlapping{{0, 10, 0.1F}, {9, 20, 0.1F}};
  args.decay = overlapping;
  EXPECT_THROW(adamw(args), Error);
}

}  // namespace
}  // namespace strake::kernels
