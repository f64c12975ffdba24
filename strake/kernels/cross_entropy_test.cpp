#include "strake/kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>

#include "strake/core/error.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::cross_entropy_test {
namespace {

template <typename T>
struct Problem {
  Problem(int64_t token_count, int64_t class_count)
      : tokens(token_count), classes(class_count), logits(random_values<T>(tokens * classes, 1, 4.0F)) {
    for (int64_t t = 0; t < tokens; ++t) targets.push_back(static_cast<int32_t>((t * 7 + classes - 1) % classes));
  }
  int64_t tokens, classes;
  std::vector<T> logits;
  std::vector<int32_t> targets;
};

template <typename T>
struct Result {
  std::vector<float> nll;
  std::vector<T> gradient;
};

constexpr float kScale = 0.125F;

template <typename T>
Result<T> run(const Problem<T>& problem, Isa isa, float smoothing = 0) {
  Result<T> result{.nll = std::vector<float>(problem.targets.size()), .gradient = problem.logits};
  cross_entropy<T>({.logits = result.gradient.data(),  // in place
                    .targets = problem.targets.data(),
                    .nll = result.nll.data(),
                    .gradient = result.gradient.data(),
                    .scale = kScale,
                    .smoothing = smoothing,
                    .tokens = problem.tokens,
                    .classes = problem.classes},
                   isa);
  return result;
}

template <typename T>
class CrossEntropy : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropy, StorageTypes);

struct Expected {
  std::vector<double> nll, gradient;
};

// The cross entropy of softmax and a distribution that has 1 - smoothing at the target and is even otherwise.
template <typename T>
Expected formula(const Problem<T>& problem, double smoothing) {
  const std::vector<double> x = doubles(problem.logits);
  const auto classes = static_cast<size_t>(problem.classes);
  Expected result{.nll = std::vector<double>(problem.targets.size()), .gradient = std::vector<double>(x.size())};
  for (size_t t = 0; t < problem.targets.size(); ++t) {
    const std::span row = std::span(x).subspan(t * classes, classes);
    double sum = 0;
    for (const double logit : row) sum += std::exp(logit);
    for (size_t c = 0; c < classes; ++c) {
      const bool is_target = c == static_cast<size_t>(problem.targets[t]);
      const double wanted = (is_target ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
      result.nll[t] += wanted * (std::log(sum) - row[c]);
      result.gradient[t * classes + c] = kScale * (std::exp(row[c]) / sum - wanted);
    }
  }
  return result;
}

TYPED_TEST(CrossEntropy, IsTheFormulaInEveryRung) {
  for (const int64_t classes : {1, 2, 7, 8, 15, 16, 17, 120, 1024, 1030, 5003}) {
    const Problem<TypeParam> problem(5, classes);
    for (const float smoothing : {0.0F, 0.1F, 1.0F}) {
      const Expected want = formula(problem, smoothing);
      for (const Isa isa : usable_rungs()) {
        const std::string what = fmt::format("{} classes {} smoothing {}", to_string(isa), classes, smoothing);
        const Result<TypeParam> got = run(problem, isa, smoothing);
        expect_close(got.nll, want.nll, 4e-6, 1e-6, what);  // differences and sums of fp32 numbers up to 20
        expect_close(got.gradient, want.gradient, 1e-6 * kScale, 4e-6 + kRounding<TypeParam>, what);
      }
    }
  }
}

TYPED_TEST(CrossEntropy, GivesTheSameLossWithoutTheGradientAndOnAnyNumberOfThreads) {
  const Problem<TypeParam> problem(33, 1030);
  for (const Isa isa : usable_rungs()) {
    const WithThreads one(1);
    const Result<TypeParam> want = run(problem, isa);
    std::vector<float> nll(33);
    cross_entropy<TypeParam>({.logits = problem.logits.data(),
                              .targets = problem.targets.data(),
                              .nll = nll.data(),
                              .tokens = 33,
                              .classes = 1030},
                             isa);
    EXPECT_TRUE(same_bits(nll, want.nll)) << to_string(isa);
    for (const int threads : {2, 3}) {
      const WithThreads several(threads);
      const Result<TypeParam> got = run(problem, isa);
      EXPECT_TRUE(same_bits(got.nll, want.nll) && same_bits(got.gradient, want.gradient)) << to_string(isa);
    }
  }
}

TEST(CrossEntropyExtremes, OfLogitsThatWouldOverflowAreExact) {
  for (const Isa isa : usable_rungs()) {
    Problem<float> problem(2, 20);
    std::ranges::fill(problem.logits, -3e38F);
    problem.logits[3] = 3e38F;
    problem.logits[20 + 3] = 500;
    problem.targets = {3, 3};
    const Result<float> got = run(problem, isa);
    EXPECT_EQ(got.nll, (std::vector<float>{0, 0})) << to_string(isa);
    for (const float value : got.gradient) EXPECT_EQ(value, 0) << to_string(isa);
  }
}

TEST(CrossEntropyNan, FillsItsTokenAndNoOther) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const size_t place : {size_t{33}, size_t{39}}) {  // within whole vectors and in the tail
      Problem<float> problem(3, 41);
      problem.logits[41 + place] = bad;
      for (const Isa isa : usable_rungs()) {
        const Result<float> got = run(problem, isa);
        for (size_t t = 0; t < 3; ++t) EXPECT_EQ(std::isnan(got.nll[t]), t == 1) << to_string(isa) << " " << t;
      }
    }
  }
}

TEST(CrossEntropyTargets, OutsideOfTheClassesAreRefused) {
  for (const int32_t target : {-1, 20}) {
    Problem<float> problem(3, 20);
    problem.targets[1] = target;
    EXPECT_THROW(run(problem, Isa::kReference), Error);
  }
}

}  // namespace
}  // namespace strake::kernels::cross_entropy_test
