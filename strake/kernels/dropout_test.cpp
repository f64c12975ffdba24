#include "strake/kernels/dropout.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "strake/core/error.h"
#include "strake/kernels/keep_rule.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::dropout_test {
namespace {

template <typename T>
class DropoutOf : public ::testing::Test {};
TYPED_TEST_SUITE(DropoutOf, StorageTypes);

TYPED_TEST(DropoutOf, ValuesFollowsTheDefinitionBitForBitInEveryRung) {
  const TestIndex index({3, 1, 7});
  const Dropout dropped{.key = philox_key(1, 2), .site = 40000, .p = 0.1F};
  const KeepRule keep = keep_rule(dropped, index.index());
  for (const int64_t columns : {1, 3, 4, 15, 16, 17, 31, 63, 64, 65, 130, 768}) {
    const auto x = random_values<TypeParam>(11 * columns, 5);
    std::vector<TypeParam> want;
    for (int64_t i = 0; i < 11 * columns; ++i) {
      const float factor = keeps(keep, i / columns, i % columns) ? 1.0F / (1.0F - 0.1F) : 0.0F;
      want.push_back(from_float<TypeParam>(to_float(x[static_cast<size_t>(i)]) * factor));
    }
    for (const Isa isa : usable_rungs()) {
      std::vector<TypeParam> y(x.size());
      dropout<TypeParam>(
          {.x = x.data(), .y = y.data(), .tokens = 11, .columns = columns, .dropout = dropped, .index = index.index()},
          isa);
      expect_close(y, doubles(want), 0, 0, std::string(to_string(isa)) + " columns " + std::to_string(columns));
    }
  }
}

TYPED_TEST(DropoutOf, ValuesInPlaceHasTheSameBitsForAnyNumberOfThreads) {
  const TestIndex index({50, 47});
  const auto x = random_values<TypeParam>(97 * 100, 6);
  for (const Isa isa : usable_rungs()) {
    std::vector<std::vector<TypeParam>> results;
    for (const int threads : {1, 2, 3}) {
      const WithThreads scope(threads);
      auto y = x;
      dropout<TypeParam>({.x = y.data(),
                          .y = y.data(),
                          .tokens = 97,
                          .columns = 100,
                          .dropout = {.key = philox_key(9, 9), .p = 0.5F},
                          .index = index.index()},
                         isa);
      results.push_back(y);
    }
    EXPECT_TRUE(same_bits(results[0], results[1]) && same_bits(results[0], results[2])) << to_string(isa);
  }
}

TEST(DropoutOff, IsTheIdentityAndNeedsNoIndex) {
  const auto x = random_values<float>(int64_t{5} * 21, 7);
  for (const Isa isa : usable_rungs()) {
    std::vector<float> y(x.size());
    dropout<float>({.x = x.data(), .y = y.data(), .tokens = 5, .columns = 21}, isa);
    EXPECT_TRUE(same_bits(x, y)) << to_string(isa);
  }
}

TEST(DropoutNan, IsNotHiddenByDroppingIt) {
  const TestIndex index({4});
  for (const Isa isa : usable_rungs()) {
    std::vector<float> x(size_t{4} * 70, std::numeric_limits<float>::quiet_NaN());
    dropout<float>({.x = x.data(),
                    .y = x.data(),
                    .tokens = 4,
                    .columns = 70,
                    .dropout = {.key = {1, 2}, .p = 0.5F},
                    .index = index.index()},
                   isa);
    for (const float value : x) EXPECT_TRUE(std::isnan(value)) << to_string(isa);
  }
}

TEST(DropoutArguments, OutsideTheirRangeAreRefused) {
  const TestIndex index({1});
  EXPECT_THROW(keep_rule({.p = 1.0F}, index.index()), Error);
  EXPECT_THROW(keep_rule({.p = -0.1F}, index.index()), Error);
  EXPECT_THROW(keep_rule({.site = 65536, .p = 0.1F}, index.index()), Error);
  EXPECT_THROW(keep_rule({.p = 0.1F}, {}), Error);
}

}  // namespace
}  // namespace strake::kernels::dropout_test
