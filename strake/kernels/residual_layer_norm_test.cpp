#include "strake/kernels/residual_layer_norm.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/kernels/keep_rule.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::residual_layer_norm_test {
namespace {

constexpr float kEps = 1e-5F;

template <typename T>
struct Layer {
  Layer(int64_t token_count, int64_t column_count, float dropout_p)
      : tokens(token_count),
        columns(column_count),
        index({static_cast<int32_t>(token_count)}),
        x(random_values<T>(tokens * columns, 1)),
        residual(random_values<T>(tokens * columns, 2, 3.0F)),
        gamma(random_values<T>(columns, 3)),
        beta(random_values<T>(columns, 4)),
        dy(random_values<T>(tokens * columns, 5)),
        dropout{.key = philox_key(7, 8), .site = 3, .p = dropout_p} {}
  int64_t tokens, columns;
  TestIndex index;
  std::vector<T> x, residual, gamma, beta, dy;
  Dropout dropout;
};

template <typename T>
struct Result {
  std::vector<T> sum, y, dsum, dx;
  std::vector<float> mean, rstd, dgamma, dbeta;
};

template <typename T>
Result<T> run(const Layer<T>& l, Isa isa, const T* dsum_in = nullptr) {
  Result<T> r;
  for (std::vector<T>* array : {&r.sum, &r.y, &r.dsum, &r.dx}) array->resize(l.x.size());
  for (std::vector<float>* array : {&r.mean, &r.rstd}) array->resize(static_cast<size_t>(l.tokens));
  for (std::vector<float>* array : {&r.dgamma, &r.dbeta}) array->resize(static_cast<size_t>(l.columns));
  residual_layer_norm_forward<T>({.x = l.x.data(),
                                  .residual = l.residual.empty() ? nullptr : l.residual.data(),
                                  .gamma = l.gamma.data(),
                                  .beta = l.beta.data(),
                                  .sum = r.sum.data(),
                                  .y = r.y.data(),
                                  .mean = r.mean.data(),
                                  .rstd = r.rstd.data(),
                                  .tokens = l.tokens,
                                  .columns = l.columns,
                                  .eps = kEps,
                                  .dropout = l.dropout,
                                  .index = l.index.index()},
                                 isa);
  residual_layer_norm_backward<T>({.dy = l.dy.data(),
                                   .sum = r.sum.data(),
                                   .mean = r.mean.data(),
                                   .rstd = r.rstd.data(),
                                   .gamma = l.gamma.data(),
                                   .dsum_in = dsum_in,
                                   .dsum = r.dsum.data(),
                                   .dx = r.dx.data(),
                                   .dgamma = r.dgamma.data(),
                                   .dbeta = r.dbeta.data(),
                                   .tokens = l.tokens,
                                   .columns = l.columns,
                                   .dropout = l.dropout,
                                   .index = l.index.index()},
                                  isa);
  return r;
}

// sum = dropout(x) + residual, in double.
template <typename T>
std::vector<double> formula_sum(const Layer<T>& l) {
  const KeepRule keep = keep_rule(l.dropout, l.index.index());
  std::vector<double> sum = doubles(l.x);
  for (size_t i = 0; i < sum.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    sum[i] *= keep_factor(keep, at / l.columns, at % l.columns);
    if (!l.residual.empty()) sum[i] += to_float(l.residual[i]);
  }
  return sum;
}

std::vector<double> formula_norm(const std::vector<double>& sum, const std::vector<double>& gamma,
                                 const std::vector<double>& beta) {
  std::vector<double> y(sum.size());
  const size_t columns = gamma.size();
  for (size_t row = 0; row < sum.size(); row += columns) {
    double mean = 0;
    double variance = 0;
    for (size_t c = 0; c < columns; ++c) mean += sum[row + c] / static_cast<double>(columns);
    for (size_t c = 0; c < columns; ++c) variance += std::pow(sum[row + c] - mean, 2) / static_cast<double>(columns);
    for (size_t c = 0; c < columns; ++c) {
      y[row + c] = (sum[row + c] - mean) / std::sqrt(variance + double{kEps}) * gamma[c] + beta[c];
    }
  }
  return y;
}

template <typename T>
class ResidualLayerNorm : public ::testing::Test {};
TYPED_TEST_SUITE(ResidualLayerNorm, StorageTypes);

template <typename T>
void expect_formula(const Layer<T>& layer, const std::string& name) {
  const std::vector<double> sum = formula_sum(layer);
  for (const Isa isa : usable_rungs()) {
    const Result<T> got = run(layer, isa);
    const std::string what = std::string(to_string(isa)) + " " + name;
    expect_close(got.sum, sum, 1e-6, 2 * kRounding<T>, what);  // fp32 product and sum, one store
    const std::vector<double> y = formula_norm(doubles(got.sum), doubles(layer.gamma), doubles(layer.beta));
    expect_close(got.y, y, 1e-5, kRounding<T>, what);  // fp32 sums over the columns, one store
  }
}

TYPED_TEST(ResidualLayerNorm, ForwardIsTheFormulaInEveryRung) {
  for (const int64_t columns : {5, 16, 20, 63, 64, 65, 768, 1000}) {
    for (const float p : {0.0F, 0.1F}) {
      for (const bool has_residual : {true, false}) {
        Layer<TypeParam> layer(7, columns, p);
        if (!has_residual) layer.residual.clear();
        expect_formula(layer, "columns " + std::to_string(columns));
      }
    }
  }
}

TYPED_TEST(ResidualLayerNorm, RowsMayLieApart) {
  const Layer<TypeParam> layer(7, 65, 0.1F);
  const int64_t stride = layer.columns + 3;
  const auto apart = [&](const std::vector<TypeParam>& rows) {
    std::vector<TypeParam> spread(static_cast<size_t>(layer.tokens * stride), from_float<TypeParam>(-7.0F));
    for (int64_t i = 0; i < layer.tokens; ++i) {
      std::copy_n(rows.begin() + i * layer.columns, layer.columns, spread.begin() + i * stride);
    }
    return spread;
  };
  const auto x = apart(layer.x), residual = apart(layer.residual);
  for (const Isa isa : usable_rungs()) {
    const Result<TypeParam> want = run(layer, isa);
    auto sum = apart(layer.x), y = sum;
    std::vector<float> mean(want.mean.size()), rstd = mean;
    residual_layer_norm_forward<TypeParam>({.x = x.data(),
                                            .residual = residual.data(),
                                            .gamma = layer.gamma.data(),
                                            .beta = layer.beta.data(),
                                            .sum = sum.data(),
                                            .y = y.data(),
                                            .mean = mean.data(),
                                            .rstd = rstd.data(),
                                            .tokens = layer.tokens,
                                            .columns = layer.columns,
                                            .stride = stride,
                                            .eps = kEps,
                                            .dropout = layer.dropout,
                                            .index = layer.index.index()},
                                           isa);
    EXPECT_TRUE(same_bits(sum, apart(want.sum))) << to_string(isa);
    EXPECT_TRUE(same_bits(y, apart(want.y))) << to_string(isa);
    EXPECT_TRUE(same_bits(mean, want.mean) && same_bits(rstd, want.rstd)) << to_string(isa);
  }
}

TEST(ResidualLayerNormGradient, IsTheSlopeOfTheFormulaInEveryRung) {
  for (const float p : {0.0F, 0.3F}) {
    const Layer<float> layer(3, 21, p);
    const KeepRule keep = keep_rule(layer.dropout, layer.index.index());
    const std::vector<double> weights = doubles(layer.dy);
    std::vector<double> sum = formula_sum(layer);
    std::vector<double> gamma = doubles(layer.gamma);
    std::vector<double> beta = doubles(layer.beta);
    const auto loss = [&] {
      const std::vector<double> y = formula_norm(sum, gamma, beta);
      return std::inner_product(y.begin(), y.end(), weights.begin(), 0.0);
    };
    const auto slopes = [&](std::vector<double>& variable) {
      std::vector<double> result;
      for (double& number : variable) {
        constexpr double kStep = 1e-5;  // error of central differences: step^2 plus 1e-16 / step
        const double before = std::exchange(number, number - kStep);
        const double low = loss();
        number = before + kStep;
        result.push_back((loss() - low) / (2 * kStep));
        number = before;
      }
      return result;
    };
    const std::vector<double> dsum = slopes(sum);
    std::vector<double> dx = dsum;
    for (size_t i = 0; i < dx.size(); ++i) {
      dx[i] *= keep_factor(keep, static_cast<int64_t>(i) / 21, static_cast<int64_t>(i) % 21);
    }
    for (const Isa isa : usable_rungs()) {
      const Result<float> got = run(layer, isa);  // fp32 sums over 21 columns
      expect_close(got.dsum, dsum, 3e-6, 1e-6, to_string(isa));
      expect_close(got.dx, dx, 3e-6, 1e-6, to_string(isa));
      expect_close(got.dgamma, slopes(gamma), 3e-6, 1e-6, to_string(isa));
      expect_close(got.dbeta, slopes(beta), 3e-6, 1e-6, to_string(isa));
    }
  }
}

TYPED_TEST(ResidualLayerNorm, BackwardAgreesWithTheReferenceInEveryRung) {
  for (const int64_t columns : {5, 16, 20, 65, 768}) {
    const Layer<TypeParam> layer(130, columns, 0.1F);
    const Result<TypeParam> want = run(layer, Isa::kReference);
    for (const Isa isa : usable_rungs()) {
      const Result<TypeParam> got = run(layer, isa);
      const std::string what = std::string(to_string(isa)) + " columns " + std::to_string(columns);
      expect_close(got.dsum, doubles(want.dsum), 1e-5, 2 * kRounding<TypeParam>, what);
      expect_close(got.dx, doubles(want.dx), 1e-5, 2 * kRounding<TypeParam>, what);
      expect_close(got.dgamma, doubles(want.dgamma), 1e-4, 1e-6, what);  // fp32 sums over 130 tokens
      expect_close(got.dbeta, doubles(want.dbeta), 1e-4, 1e-6, what);
    }
  }
}

TYPED_TEST(ResidualLayerNorm, BackwardAddsTheGradientOfASecondUseOfTheSumInEveryRung) {
  for (const float p : {0.0F, 0.1F}) {
    Layer<TypeParam> layer(9, 65, p);
    const KeepRule keep = keep_rule(layer.dropout, layer.index.index());
    const std::vector<TypeParam> second = random_values<TypeParam>(9 * 65, 6);
    for (const Isa isa : usable_rungs()) {
      const Result<TypeParam> alone = run(layer, isa);
      const Result<TypeParam> both = run(layer, isa, second.data());
      std::vector<double> dsum = doubles(alone.dsum);
      for (size_t i = 0; i < dsum.size(); ++i) dsum[i] += to_float(second[i]);
      std::vector<double> dx = dsum;
      for (size_t i = 0; i < dx.size(); ++i) {
        dx[i] *= keep_factor(keep, static_cast<int64_t>(i) / 65, static_cast<int64_t>(i) % 65);
      }
      // `alone` was rounded when it was stored, which the sum is not: values up to 10.
      const double absolute = 20 * kRounding<TypeParam>;
      expect_close(both.dsum, dsum, absolute, kRounding<TypeParam>, to_string(isa));
      expect_close(both.dx, dx, absolute, kRounding<TypeParam>, to_string(isa));
      EXPECT_TRUE(same_bits(both.dgamma, alone.dgamma) && same_bits(both.dbeta, alone.dbeta)) << to_string(isa);
    }
  }
}

TYPED_TEST(ResidualLayerNorm, HasTheSameBitsForAnyNumberOfThreads) {
  const Layer<TypeParam> layer(333, 100, 0.1F);
  for (const Isa isa : usable_rungs()) {
    const WithThreads one(1);
    const Result<TypeParam> want = run(layer, isa);
    for (const int threads : {2, 3}) {
      const WithThreads several(threads);
      const Result<TypeParam> got = run(layer, isa);
      EXPECT_TRUE(same_bits(got.y, want.y) && same_bits(got.dx, want.dx) && same_bits(got.dsum, want.dsum) &&
                  same_bits(got.dgamma, want.dgamma) && same_bits(got.dbeta, want.dbeta))
          << to_string(isa) << " with " << threads << " threads";
    }
  }
}

TEST(ResidualLayerNormNan, FillsItsTokenAndNoOther) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Layer<float> layer(3, 40, 0);
    layer.x[40 + 33] = bad;
    for (const Isa isa : usable_rungs()) {
      const Result<float> got = run(layer, isa);
      for (size_t i = 0; i < 120; ++i) EXPECT_EQ(std::isnan(got.y[i]), i / 40 == 1) << to_string(isa) << " " << i;
      for (const float value : got.dgamma) EXPECT_TRUE(std::isnan(value)) << to_string(isa);
    }
  }
}

TEST(ResidualLayerNormAliasing, OfSumWithResidualAndOfDxWithDsumWorksAndSumsMayBeLeftOut) {
  const Layer<float> layer(9, 50, 0);
  for (const Isa isa : usable_rungs()) {
    const Result<float> want = run(layer, isa);
    std::vector<float> sum = layer.residual;
    Result<float> got = want;
    const auto normalize = [&](const float* residual, float* sums, float* y) {
      residual_layer_norm_forward<float>({.x = layer.x.data(),
                                          .residual = residual,
                                          .gamma = layer.gamma.data(),
                                          .beta = layer.beta.data(),
                                          .sum = sums,
                                          .y = y,
                                          .mean = got.mean.data(),
                                          .rstd = got.rstd.data(),
                                          .tokens = 9,
                                          .columns = 50,
                                          .eps = kEps},
                                         isa);
    };
    normalize(sum.data(), sum.data(), got.y.data());
    EXPECT_TRUE(same_bits(sum, want.sum) && same_bits(got.y, want.y)) << to_string(isa);
    std::vector<float> y(want.y.size());
    normalize(layer.residual.data(), nullptr, y.data());
    EXPECT_TRUE(same_bits(y, want.y)) << to_string(isa);
    std::vector<float> dx = layer.dy;
    ResidualLayerNormBackward<float> in_place{.dy = dx.data(),
                                              .sum = sum.data(),
                                              .mean = got.mean.data(),
                                              .rstd = got.rstd.data(),
                                              .gamma = layer.gamma.data(),
                                              .dsum = dx.data(),
                                              .dx = dx.data(),
                                              .dgamma = got.dgamma.data(),
                                              .dbeta = got.dbeta.data(),
                                              .tokens = 9,
                                              .columns = 50};
    residual_layer_norm_backward<float>(in_place, isa);
    EXPECT_TRUE(same_bits(dx, want.dx)) << to_string(isa);
    in_place.dropout.p = 0.1F;
    in_place.index = layer.index.index();
    EXPECT_THROW(residual_layer_norm_backward<float>(in_place, isa), Error);
  }
}

}  // namespace
}  // namespace strake::kernels::residual_layer_norm_test
