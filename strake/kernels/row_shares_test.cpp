#include "strake/kernels/row_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "strake/core/threads.h"

namespace strake::kernels::row_shares_test {

using testing::Each;
using testing::ElementsAre;

// Tiles of rows of a part's shares, in the order of all().
std::vector<int64_t> sizes_of(const RowShares& shares, int part) {
  std::vector<int64_t> sizes;
  for (const auto& share : shares.all()) {
    if (share.part == part) sizes.push_back(share.rows.end - share.rows.begin);
  }
  return sizes;
}

TEST(ThreadGrid, OfFewRowsEachThreadReadsItsOwnPanels) {
  EXPECT_EQ(ThreadGrid(2, 12, 2, 24).across, 2) << "a text of 24 tokens";
  EXPECT_EQ(ThreadGrid(2, 12, 72, 24).down, 2);
  EXPECT_EQ(ThreadGrid(2, 32, 4, 24).down, 2) << "128 rows are worth reading a panel for";
}

TEST(RowShares, HalfOfWhatIsLeftAtATime) {
  const ThreadGrid grid(2, 12, 72, 96);
  ASSERT_EQ(grid.down, 2);
  EXPECT_THAT(sizes_of(RowShares(grid, 6), 1), ElementsAre(18, 9, 6, 3));
  EXPECT_THAT(sizes_of(RowShares(grid, 0), 1), ElementsAre(36)) << "a part as a whole";
  EXPECT_THAT(sizes_of(RowShares(ThreadGrid(1, 12, 72, 96), 6), 0), ElementsAre(72)) << "there is nobody to share with";
}

TEST(RowShares, EachRowOfAPartOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    for (const int64_t row_tiles : {1, 5, 72}) {
      const ThreadGrid grid(threads, 12, row_tiles, 10);
      std::vector<int64_t> next(static_cast<size_t>(grid.parts()));
      for (int part = 0; part < grid.parts(); ++part) next[static_cast<size_t>(part)] = grid.rows_of(part).begin;
      const RowShares shares(grid, 4);
      for (const auto& share : shares.all()) {
        EXPECT_EQ(share.rows.begin, next[static_cast<size_t>(share.part)]);
        next[static_cast<size_t>(share.part)] = share.rows.end;
      }
      for (int part = 0; part < grid.parts(); ++part) {
        EXPECT_EQ(next[static_cast<size_t>(part)], grid.rows_of(part).end);
      }
    }
  }
}

TEST(RowShares, AThreadThatIsSlowHasOneShareWhileAnotherTakesTheRest) {
  const ThreadGrid grid(2, 12, 72, 96);
  RowShares shares(grid, 6);
  std::vector<int> of_slow;
  std::vector<int> of_other;
  shares.take(0, [&](const RowShares::Share& share) {
    of_slow.push_back(share.part);
    shares.take(1, [&](const RowShares::Share& taken) { of_other.push_back(taken.part); });
  });
  EXPECT_THAT(of_slow, ElementsAre(0));
  EXPECT_THAT(of_other, ElementsAre(1, 1, 1, 1, 0, 0, 0)) << "its own first";
}

TEST(RowShares, ThreadsTakeEachShareOnce) {
  constexpr int kThreads = 4;
  const ThreadGrid grid(kThreads, 12, 1000, 8);
  RowShares shares(grid, 2);
  std::vector<std::atomic<int>> taken(shares.all().size());
  run_team(kThreads, [&](int id, int) {
    shares.take(id, [&](const RowShares::Share& share) { ++taken[static_cast<size_t>(&share - shares.all().data())]; });
  });
  std::vector<int> counts(taken.begin(), taken.end());
  EXPECT_THAT(counts, Each(1));
}

}  // namespace strake::kernels::row_shares_test
