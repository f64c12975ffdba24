#include "strake/kernels/lamb.h"

#include <gtest/gtest.h>

#include <vector>

#include "strake/core/error.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::lamb_test {
namespace {

constexpr int64_t kCount = 50021;
const std::vector<TensorSegment> kTensors{{0, 17001, 0.1}, {17024, 17025, 0.0}, {17056, 49999, 0.3}};

struct State {
  std::vector<float> p = random_values<float>(kCount, 1);
  std::vector<float> g = random_values<float>(kCount, 4, 0.1F);
  std::vector<float> m = std::vector<float>(kCount);
  std::vector<float> v = std::vector<float>(kCount);

  FlatWindow window(int64_t begin, int64_t end) {
    return {.parameters = p.data() + begin,
            .gradients = g.data() + begin,
            .states = {m.data() + begin, v.data() + begin},
            .begin = begin,
            .count = end - begin,
            .segments = kTensors};
  }
};

constexpr UpdateStep kStep{.learning_rate = 0.01, .number = 2, .gradient_scale = 0.5F};

TEST(Lamb, SumsSquaresByTensorAndChunk) {
  // Chunks end at 16384, 32768 and 49152.
  ASSERT_EQ(num_lamb_sums(kTensors), 2 + 1 + 3);
  EXPECT_EQ(num_lamb_sums(std::vector<TensorSegment>{{16384, 32768, 0}, {32768, 32768, 0}}), 1);
  const std::vector<std::pair<int64_t, int64_t>> ranges{{0, 16384},     {16384, 17001}, {17024, 17025},
                                                        {17056, 32768}, {32768, 49152}, {49152, 49999}};
  for (const Isa isa : usable_rungs()) {
    State s;
    std::vector<LambSums> sums(6, {-1, -1});
    lamb_moments(s.window(0, kCount), kStep, {}, sums, isa);
    for (size_t i = 0; i < sums.size(); ++i) {
      double parameter = 0;
      double update = 0;
      const double decay = i < 2 ? 0.1 : i == 2 ? 0.0 : 0.3;
      for (auto k = static_cast<size_t>(ranges[i].first); k < static_cast<size_t>(ranges[i].second); ++k) {
        const double u = s.m[k] / (std::sqrt(double{s.v[k]}) + 1e-8) + decay * s.p[k];
        parameter += double{s.p[k]} * s.p[k];
        update += u * u;
      }
      EXPECT_NEAR(sums[i].parameter, parameter, 1e-12 * parameter) << i;  // double sums in another order
      EXPECT_NEAR(sums[i].update, update, 1e-6 * update) << i;            // fp32 roundings of u
    }
  }
}

TEST(Lamb, WritesOnlyTheSumsOfItsWindow) {
  State s;
  std::vector<LambSums> sums(6, {-1, -1});
  lamb_moments(s.window(16384, 32768), kStep, {}, sums);
  const std::vector<bool> written{false, true, true, true, false, false};
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i].parameter != -1, written[i]) << i;
}

TEST(Lamb, BoundsTheRatioOfNormsAndTakesOneWhereANormIsZero) {
  const std::vector<TensorSegment> tensors{{0, 10, 0}, {10, 20, 0}, {20, 30, 0}, {30, 40, 0}, {40, 50, 0}};
  const std::vector<LambSums> sums{{4, 1}, {1e6, 1}, {1e-9, 1}, {0, 1}, {1, 0}};
  EXPECT_EQ(lamb_coefficients(tensors, sums, {}), (std::vector<double>{2, 10, 0.01, 1, 1}));
}

TEST(Lamb, HasTheBitsOfTheReferenceGivenTheSameCoefficients) {
  const std::vector<double> coefficients{0.7, 1, 3};
  State want;
  std::vector<LambSums> sums(6);
  lamb_moments(want.window(0, kCount), kStep, {}, sums, Isa::kReference);
  lamb_apply(want.window(0, kCount), kStep, {}, coefficients, Isa::kReference);
  const State start;
  for (const size_t gap : {17001U, 17023U, 17025U, 49999U, 50020U}) EXPECT_EQ(want.p[gap], start.p[gap]) << gap;
  for (const Isa isa : usable_rungs()) {
    State got;
    lamb_moments(got.window(0, kCount), kStep, {}, sums, isa);
    lamb_apply(got.window(0, kCount), kStep, {}, coefficients, isa);
    EXPECT_TRUE(same_bits(got.p, want.p) && same_bits(got.m, want.m) && same_bits(got.v, want.v)) << to_string(isa);
  }
}

TEST(Lamb, RefusesWindowsThatCutAChunk) {
  State s;
  std::vector<LambSums> sums(6);
  EXPECT_THROW(lamb_moments(s.window(0, 16000), kStep, {}, sums), Error);
  EXPECT_THROW(lamb_moments(s.window(100, kCount), kStep, {}, sums), Error);
  EXPECT_NO_THROW(lamb_moments(s.window(0, 49999), kStep, {}, sums));
  EXPECT_NO_THROW(lamb_moments(s.window(100, 100), kStep, {}, sums)) << "a rank without a piece";
  sums.pop_back();
  EXPECT_THROW(lamb_moments(s.window(0, kCount), kStep, {}, sums), Error);
  EXPECT_THROW(lamb_apply(s.window(0, kCount), kStep, {}, std::vector<double>{1}), Error);
}

}  // namespace
}  // namespace strake::kernels::lamb_test
