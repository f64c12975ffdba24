#include "strake/data/epoch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_set>
#include <vector>

#include "strake/core/error.h"

namespace strake::data::epoch_order_test {
namespace {

std::vector<int64_t> whole_order(const EpochOrder& order) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < order.size(); ++i) result.push_back(order.at(i));
  return result;
}

TEST(EpochOrderTest, EverySizeUpTo300IsVisitedExactlyOnce) {
  for (int64_t n = 0; n <= 300; ++n) {
    std::vector<int64_t> seen = whole_order(EpochOrder(n, 7, 3, Shuffle::kOn));
    std::ranges::sort(seen);
    std::vector<int64_t> expected(static_cast<size_t>(n));
    std::iota(expected.begin(), expected.end(), 0);
    ASSERT_EQ(seen, expected) << "n=" << n;
  }
}

TEST(EpochOrderTest, HugeSizesStayInRangeWithoutCollisions) {
  for (const int64_t n : {int64_t{1'000'003}, int64_t{5'000'000'000}, (int64_t{1} << 62) + 5}) {
    const EpochOrder order(n, 42, 0, Shuffle::kOn);
    std::unordered_set<int64_t> seen;
    for (int64_t i = 0; i < 20000; ++i) {
      const int64_t value = order.at(i * (n / 20000));
      ASSERT_GE(value, 0);
      ASSERT_LT(value, n);
      ASSERT_TRUE(seen.insert(value).second) << "n=" << n << " position " << i;
    }
  }
}

TEST(EpochOrderTest, EpochAndSeedChangeTheOrder) {
  const auto order = [](uint64_t seed, int64_t epoch) {
    return whole_order(EpochOrder(1000, seed, epoch, Shuffle::kOn));
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
}

TEST(EpochOrderTest, WithoutShufflingTheOrderIsTheFile) {
  EXPECT_THAT(whole_order(EpochOrder(5, 9, 2, Shuffle::kOff)), testing::ElementsAre(0, 1, 2, 3, 4));
}

// Resumed runs need the same order for ever: a change here breaks every saved cursor.
TEST(EpochOrderTest, OrderOfEarlierVersionsIsKept) {
  EXPECT_THAT(whole_order(EpochOrder(10, 42, 0, Shuffle::kOn)), testing::ElementsAre(3, 1, 8, 2, 0, 5, 7, 4, 9, 6));
  EXPECT_EQ(EpochOrder(1'000'000'000, 42, 5, Shuffle::kOn).at(123'456'789), 951'218'197);
}

TEST(EpochOrderTest, OrdersOfSixItemsAreUniform) {
  // All 720 orders, 100 expected of each: chi-square with 719 degrees of freedom has mean 719 and deviation 37.9.
  std::array<int, 720> count{};
  for (int64_t epoch = 0; epoch < 72000; ++epoch) {
    const std::vector<int64_t> order = whole_order(EpochOrder(6, 11, epoch, Shuffle::kOn));
    size_t rank = 0;  // lexicographic, in the factorial number system
    for (auto item = order.begin(); item != order.end(); ++item) {
      const auto smaller_after = std::count_if(item, order.end(), [&](int64_t other) { return other < *item; });
      rank = rank * static_cast<size_t>(order.end() - item) + static_cast<size_t>(smaller_after);
    }
    ++count[rank];
  }
  double chi_square = 0;
  for (const int observed : count) chi_square += (observed - 100.0) * (observed - 100.0) / 100.0;
  EXPECT_NEAR(chi_square, 719, 5 * 37.9);
}

TEST(EpochOrderTest, NeighboursAreSpreadOverALargeSet) {
  // Mean distance of two uniform positions is n/3, its deviation over 10000 pairs about 0.0024 n.
  constexpr int64_t kSize = 1'000'000;
  const EpochOrder order(kSize, 3, 1, Shuffle::kOn);
  double sum = 0;
  for (int64_t i = 0; i < 10000; ++i) {
    sum += static_cast<double>(std::abs(order.at(2 * i) - order.at(2 * i + 1))) / kSize;
  }
  EXPECT_NEAR(sum / 10000, 1.0 / 3, 5 * 0.0024);
}

TEST(EpochOrderTest, PositionsOutsideAreRefused) {
  const EpochOrder order(3, 1, 0, Shuffle::kOn);
  EXPECT_THROW(order.at(3), Error);
  EXPECT_THROW(order.at(-1), Error);
}

}  // namespace
}  // namespace strake::data::epoch_order_test
