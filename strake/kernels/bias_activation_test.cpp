#include "strake/kernels/bias_activation.h"

#include <gtest/gtest.h>

#include <limits>
#include <numbers>
#include <vector>

#include "strake/kernels/test_values.h"

namespace strake::kernels::bias_activation_test {
namespace {

constexpr Activation kActivations[] = {Activation::kGelu, Activation::kGeluTanh, Activation::kRelu,
                                       Activation::kSilu, Activation::kTanh,     Activation::kIdentity};

double formula(Activation kind, double x) {
  switch (kind) {
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu:
      return std::max(0.0, x);
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kIdentity:
      return x;
  }
  return x;
}

// Central difference of the formula: 1e-10 from the step, 1e-11 from rounding. The kink of relu has slope 0.
double slope(Activation kind, double x) {
  if (kind == Activation::kRelu) return x > 0 ? 1.0 : 0.0;
  constexpr double kStep = 1e-5;
  return (formula(kind, x + kStep) - formula(kind, x - kStep)) / (2 * kStep);
}

template <typename T>
std::vector<T> forward(const std::vector<T>& x, const std::vector<T>& bias, Activation kind, Isa isa) {
  std::vector<T> y(x.size());
  const auto columns = static_cast<int64_t>(bias.size());
  bias_activation_forward<T>({.x = x.data(),
                              .bias = bias.data(),
                              .y = y.data(),
                              .tokens = static_cast<int64_t>(x.size()) / columns,
                              .columns = columns,
                              .activation = kind},
                             isa);
  return y;
}

template <typename T>
struct Gradient {
  std::vector<T> dx;
  std::vector<float> dbias;
};

template <typename T>
Gradient<T> backward(const std::vector<T>& dy, const std::vector<T>& x, const std::vector<T>& bias, Activation kind,
                     Isa isa) {
  Gradient<T> g{std::vector<T>(x.size()), std::vector<float>(bias.size())};
  const auto columns = static_cast<int64_t>(bias.size());
  bias_activation_backward<T>({.dy = dy.data(),
                               .x = x.data(),
                               .bias = bias.data(),
                               .dx = g.dx.data(),
                               .dbias = g.dbias.data(),
                               .tokens = static_cast<int64_t>(x.size()) / columns,
                               .columns = columns,
                               .activation = kind},
                              isa);
  return g;
}

// Every binade from 2^-30 to 2^6, both signs.
std::vector<float> sweep() {
  std::vector<float> x;
  for (int exponent = -30; exponent < 6; ++exponent) {
    for (int i = 0; i < 400; ++i) {
      const float magnitude = std::ldexp(1.0F + static_cast<float>(i) / 400.0F, exponent);
      x.push_back(magnitude);
      x.push_back(-magnitude);
    }
  }
  return x;
}

TEST(BiasActivation, ValuesAreAccurateEverywhereInEveryRung) {
  const std::vector<float> x = sweep();
  const std::vector<float> no_bias(x.size(), 0.0F);
  for (const Activation kind : kActivations) {
    std::vector<double> want;
    for (const float value : x) want.push_back(formula(kind, value));
    for (const Isa isa : usable_rungs()) {
      // Of gelu the table, of the others a few roundings.
      expect_close(forward(x, no_bias, kind, isa), want, 5e-7, 3e-7,
                   std::string(to_string(isa)) + " activation " + std::to_string(static_cast<int>(kind)));
    }
  }
}

// The error before rounding is at most 6e-6. Small numbers keep their relative accuracy, and negative ones down to
// where results become 0 keep 3e-3.
TEST(BiasActivation, GeluInBFloat16IsAccurateForEveryNumberInEveryRung) {
  std::vector<BFloat16> x;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{static_cast<uint16_t>(bits)};
    if (std::isfinite(to_float(value))) x.push_back(value);
  }
  std::vector<double> want;
  for (const BFloat16 value : x) want.push_back(formula(Activation::kGelu, to_float(value)));
  for (const Isa isa : usable_rungs()) {
    const auto y = forward(x, std::vector<BFloat16>(x.size()), Activation::kGelu, isa);
    expect_close(y, want, 6e-6, kRounding<BFloat16>, to_string(isa));
    for (size_t i = 0; i < x.size(); ++i) {
      const float value = to_float(x[i]);
      if (value > 0.1F || value < -4.8F) continue;
      const double relative = kRounding<BFloat16> + (value < -0.1F ? 3.1e-3 : 1e-4);
      constexpr double kLeastNormal = 1.2e-38;  // below, AVX512-BF16 stores 0
      ASSERT_NEAR(to_float(y[i]), want[i], relative * std::abs(want[i]) + kLeastNormal) << value;
    }
  }
}

TEST(BiasActivation, TanhKeepsSmallValuesInEveryRung) {
  const std::vector<float> x = sweep();
  std::vector<double> want;
  for (const float value : x) want.push_back(std::tanh(double{value}));
  for (const Isa isa : usable_rungs()) {
    expect_close(forward(x, std::vector<float>(x.size(), 0.0F), Activation::kTanh, isa), want, 0, 3e-7, to_string(isa));
  }
}

TEST(BiasActivation, GradientIsTheSlopeInEveryRung) {
  const std::vector<float> x = sweep();
  const std::vector<float> no_bias(x.size(), 0.0F);
  const std::vector<float> dy = random_values<float>(static_cast<int64_t>(x.size()), 9);
  for (const Activation kind : kActivations) {
    std::vector<double> want;
    for (size_t i = 0; i < x.size(); ++i) want.push_back(dy[i] * slope(kind, x[i]));
    for (const Isa isa : usable_rungs()) {
      expect_close(backward(dy, x, no_bias, kind, isa).dx, want, 2e-6, 1e-6,
                   std::string(to_string(isa)) + " activation " + std::to_string(static_cast<int>(kind)));
    }
  }
}

template <typename T>
class BiasActivationOf : public ::testing::Test {};
TYPED_TEST_SUITE(BiasActivationOf, StorageTypes);

TYPED_TEST(BiasActivationOf, RowsAddsTheBiasAndSumsItsGradientInEveryRung) {
  for (const int64_t columns : {1, 7, 8, 16, 17, 31, 100}) {
    const int64_t tokens = 131;
    const auto x = random_values<TypeParam>(tokens * columns, 1);
    const auto dy = random_values<TypeParam>(tokens * columns, 2);
    const auto bias = random_values<TypeParam>(columns, 3);
    for (const Activation kind : kActivations) {
      std::vector<double> want;
      std::vector<double> dbias(static_cast<size_t>(columns));
      for (size_t i = 0; i < x.size(); ++i) {
        const double biased = double{to_float(x[i])} + to_float(bias[i % bias.size()]);
        want.push_back(formula(kind, biased));
        dbias[i % bias.size()] += to_float(dy[i]) * slope(kind, biased);
      }
      for (const Isa isa : usable_rungs()) {
        const std::string what = std::string(to_string(isa)) + " columns " + std::to_string(columns) + " activation " +
                                 std::to_string(static_cast<int>(kind));
        const bool short_gelu = kind == Activation::kGelu && std::is_same_v<TypeParam, BFloat16>;
        expect_close(forward(x, bias, kind, isa), want, short_gelu ? 6e-6 : 1e-6, kRounding<TypeParam> + 3e-7, what);
        // dbias is summed in fp32 before dx is rounded: 131 terms of size 1 with errors of 1e-6.
        expect_close(backward(dy, x, bias, kind, isa).dbias, dbias, 5e-5, 1e-6, what);
      }
    }
  }
}

TYPED_TEST(BiasActivationOf, RowsHasTheSameBitsForAnyNumberOfThreads) {
  const auto x = random_values<TypeParam>(200 * 33, 1);
  const auto bias = random_values<TypeParam>(33, 3);
  for (const Isa isa : usable_rungs()) {
    const WithThreads one(1);
    const auto y = forward(x, bias, Activation::kGelu, isa);
    const auto gradient = backward(x, x, bias, Activation::kGelu, isa);
    for (const int threads : {2, 3}) {
      const WithThreads several(threads);
      EXPECT_TRUE(same_bits(forward(x, bias, Activation::kGelu, isa), y)) << to_string(isa);
      const auto again = backward(x, x, bias, Activation::kGelu, isa);
      EXPECT_TRUE(same_bits(again.dx, gradient.dx) && same_bits(again.dbias, gradient.dbias)) << to_string(isa);
    }
  }
}

TEST(BiasActivationNan, PassesThroughEveryActivation) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const std::vector<float> x(20, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> far{kInfinite, 1e30F, -1e30F, 100.0F, -100.0F};
  for (const Activation kind : kActivations) {
    for (const Isa isa : usable_rungs()) {
      const std::string what = std::string(to_string(isa)) + " activation " + std::to_string(static_cast<int>(kind));
      for (const float y : forward(x, std::vector<float>(20, 0.0F), kind, isa)) EXPECT_TRUE(std::isnan(y)) << what;
      const std::vector<float> y = forward(far, std::vector<float>(5, 0.0F), kind, isa);
      const bool bounded = kind == Activation::kTanh;
      const float low = kind == Activation::kIdentity ? -1e30F : bounded ? -1.0F : 0.0F;
      EXPECT_EQ(y[0], bounded ? 1.0F : kInfinite) << what;
      EXPECT_EQ(y[1], bounded ? 1.0F : 1e30F) << what;
      EXPECT_EQ(y[2], low) << what;
    }
  }
}

TEST(BiasActivationOptions, NoBiasAndNoBiasGradientAreAllowed) {
  const std::vector<float> x = random_values<float>(int64_t{5} * 19, 1);
  const std::vector<float> zero(19, 0.0F);
  for (const Isa isa : usable_rungs()) {
    std::vector<float> y = x;
    bias_activation_forward<float>({.x = y.data(), .y = y.data(), .tokens = 5, .columns = 19}, isa);
    EXPECT_TRUE(same_bits(y, forward(x, zero, Activation::kGelu, isa))) << to_string(isa);
    std::vector<float> dx = x;
    bias_activation_backward<float>({.dy = dx.data(), .x = x.data(), .dx = dx.data(), .tokens = 5, .columns = 19}, isa);
    EXPECT_TRUE(same_bits(dx, backward(x, x, zero, Activation::kGelu, isa).dx)) << to_string(isa);
  }
}

}  // namespace
}  // namespace strake::kernels::bias_activation_test
