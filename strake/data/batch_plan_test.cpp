#include "strake/data/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "strake/core/error.h"

namespace strake::data::batch_plan_test {
namespace {

std::vector<int64_t> offsets_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets{0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

std::vector<int64_t> uneven_offsets(int64_t n) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < n; ++i) lengths.push_back(1 + i * 37 % 50);
  return offsets_of(lengths);
}

std::vector<MicroBatch> epoch_of(const BatchPlan& plan, int64_t epoch) {
  std::vector<MicroBatch> result;
  for (Cursor cursor{epoch, 0}; cursor.epoch == epoch;) result.push_back(plan.next(cursor));
  return result;
}

TEST(BatchPlanTest, BatchesBySequencesCoverTheEpochOnceAndTheLastIsSmaller) {
  const auto offsets = uneven_offsets(10);
  const BatchPlan plan(offsets, {.sequences = 4});
  const auto batches = epoch_of(plan, 2);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[2].size(), 2U);
  std::vector<int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  const EpochOrder order(10, 42, 2, Shuffle::kOn);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], order.at(i));
  EXPECT_EQ(plan.micro_batches_per_epoch(2), 3);
}

TEST(BatchPlanTest, DroppingTheLastBatchLeavesOnlyFullOnes) {
  const auto offsets = uneven_offsets(10);
  const BatchPlan plan(offsets, {.sequences = 4, .last = LastBatch::kDrop});
  EXPECT_EQ(epoch_of(plan, 0).size(), 2U);
  EXPECT_EQ(plan.micro_batches_per_epoch(0), 2);
  EXPECT_THROW(BatchPlan(offsets, {.sequences = 11, .last = LastBatch::kDrop}), Error);
}

TEST(BatchPlanTest, TokenBatchesAreFilledGreedilyAndLongSequencesStandAlone) {
  const auto offsets = offsets_of({3, 3, 4, 1, 25, 2, 10, 0, 1});
  const BatchPlan plan(offsets, {.max_tokens = 10, .shuffle = Shuffle::kOff});
  EXPECT_THAT(epoch_of(plan, 0), testing::ElementsAre(MicroBatch{0, 1, 2}, MicroBatch{3}, MicroBatch{4}, MicroBatch{5},
                                                      MicroBatch{6, 7}, MicroBatch{8}));
  EXPECT_EQ(plan.micro_batches_per_epoch(0), 6);
}

TEST(BatchPlanTest, CountedMicroBatchesEqualThoseServed) {
  const auto offsets = uneven_offsets(997);
  for (const int64_t max_tokens : {1, 50, 128, 1000, 1000000}) {
    const BatchPlan plan(offsets, {.max_tokens = max_tokens});
    for (const int64_t epoch : {0, 1, 2}) {
      EXPECT_EQ(plan.micro_batches_per_epoch(epoch), static_cast<int64_t>(epoch_of(plan, epoch).size()));
    }
  }
}

TEST(BatchPlanTest, StepsDoNotDependOnHowRanksAndAccumulationShareThem) {
  const auto offsets = uneven_offsets(101);
  const BatchPlan plan(offsets, {.max_tokens = 100});
  const GlobalStep step = plan.next_step({}, 8);
  ASSERT_EQ(step.micro_batches.size(), 8U);
  for (const int world : {1, 2, 4, 8}) {
    std::vector<MicroBatch> taken(8);
    for (int rank = 0; rank < world; ++rank) {
      for (int j = 0; j < 8 / world; ++j) {
        const auto share = step.share(rank, world, j);
        taken[static_cast<size_t>(j) * world + rank].assign(share.begin(), share.end());
      }
    }
    EXPECT_EQ(taken, step.micro_batches) << world;
  }
}

TEST(BatchPlanTest, LastStepOfAnEpochIsPartialAndSomeRanksGetNothing) {
  const auto offsets = uneven_offsets(10);
  const BatchPlan plan(offsets, {.sequences = 3});  // 4 micro-batches
  EXPECT_EQ(plan.steps_per_epoch(0, 3), 2);
  const GlobalStep first = plan.next_step({}, 3);
  EXPECT_EQ(first.num_sequences(), 9);
  const GlobalStep last = plan.next_step(first.next, 3);
  EXPECT_EQ(last.micro_batches.size(), 1U);
  EXPECT_EQ(last.share(0, 3, 0).size(), 1U);
  EXPECT_TRUE(last.share(1, 3, 0).empty());
  EXPECT_EQ(last.next, (Cursor{1, 0}));
}

TEST(BatchPlanTest, MicroBatchesOfAStepHaveAboutAsManyTokensEach) {
  const auto offsets = uneven_offsets(200);
  const auto spread = [&](const std::vector<MicroBatch>& batches) {
    std::vector<int64_t> tokens;
    for (const MicroBatch& batch : batches) {
      tokens.push_back(0);
      for (const auto i : batch) tokens.back() += offsets[static_cast<size_t>(i) + 1] - offsets[static_cast<size_t>(i)];
    }
    return std::ranges::max(tokens) - std::ranges::min(tokens);
  };
  const BatchPlan plan(offsets, {.sequences = 8, .shuffle = Shuffle::kOff});
  Cursor cursor;
  for (int n = 0; n < 6; ++n) {
    const auto first = static_cast<size_t>(cursor.position);
    std::vector<MicroBatch> cut;
    Cursor next = cursor;
    for (int i = 0; i < 4; ++i) cut.push_back(plan.next(next));
    const GlobalStep step = plan.next_step(cursor, 4);
    EXPECT_EQ(step.next, next);
    EXPECT_LT(5 * spread(step.micro_batches), spread(cut)) << "step " << n;
    std::vector<int64_t> all;
    for (const MicroBatch& batch : step.micro_batches) {
      EXPECT_EQ(batch.size(), 8U);
      EXPECT_TRUE(std::ranges::is_sorted(batch)) << "not in the order of the epoch";
      all.insert(all.end(), batch.begin(), batch.end());
    }
    std::ranges::sort(all);
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(all[i], static_cast<int64_t>(first + i));
    cursor = step.next;
  }
}

TEST(BatchPlanTest, BalancedBatchesHoldNoMoreSequencesThanAskedFor) {
  const auto offsets = offsets_of({9, 9, 9, 9, 0, 0, 0, 0, 0});
  const BatchPlan plan(offsets, {.sequences = 3, .shuffle = Shuffle::kOff});
  EXPECT_THAT(plan.next_step({}, 2).micro_batches, testing::ElementsAre(MicroBatch{0, 2, 4}, MicroBatch{1, 3, 5}));
  EXPECT_THAT(plan.next_step({}, 4).micro_batches,
              testing::ElementsAre(MicroBatch{0, 3, 8}, MicroBatch{1, 4, 5}, MicroBatch{2, 6, 7}));
}

TEST(BatchPlanTest, StepsPerEpochFollowTheTrainersFormula) {
  for (const int64_t n : {1, 7, 8, 9, 64, 65, 1000}) {
    const auto offsets = uneven_offsets(n);
    for (const int64_t ranks : {1, 2, 3}) {
      for (const int64_t accumulation : {1, 4}) {
        const BatchPlan plan(offsets, {.sequences = 8});
        const int64_t batches_per_rank = (n + 8 * ranks - 1) / (8 * ranks);
        EXPECT_EQ(plan.steps_per_epoch(0, ranks * accumulation), (batches_per_rank + accumulation - 1) / accumulation);
      }
    }
  }
}

TEST(BatchPlanTest, ResumingAtAnyCursorGivesTheUninterruptedBatches) {
  const auto offsets = uneven_offsets(200);
  for (const int64_t max_tokens : {0, 90}) {
    const BatchOptions options{.sequences = 7, .max_tokens = max_tokens};
    const BatchPlan plan(offsets, options);
    std::vector<Cursor> cursors{{}};
    std::vector<std::vector<MicroBatch>> steps;
    while (steps.size() < 60) {
      GlobalStep step = plan.next_step(cursors.back(), 4);
      cursors.push_back(step.next);
      steps.push_back(std::move(step.micro_batches));
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(BatchPlan(offsets, options).next_step(cursors[i], 4).micro_batches, steps[i]);
    }
  }
}

TEST(BatchPlanTest, ImpossibleOptionsAndCursorsAreRefused) {
  const auto offsets = uneven_offsets(5);
  const std::vector<int64_t> no_sequences{0};
  EXPECT_THROW(BatchPlan(offsets, {.sequences = 0}), Error);
  EXPECT_THROW(BatchPlan(offsets, {.max_tokens = -1}), Error);
  EXPECT_THROW(BatchPlan(offsets, {.max_tokens = 5, .last = LastBatch::kDrop}), Error);
  EXPECT_THROW(BatchPlan(no_sequences, {}), Error);
  const BatchPlan plan(offsets, {});
  Cursor beyond{0, 5};
  EXPECT_THROW(plan.next(beyond), Error);
  EXPECT_THROW(plan.next_step({}, 0), Error);
}

}  // namespace
}  // namespace strake::data::batch_plan_test
