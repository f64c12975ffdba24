#include "strake/training/placement.h"

#include <gtest/gtest.h>

#include <limits>

#include "strake/models/gpt2/gpt2.h"

namespace strake::training::placement_test {
namespace {

class PersistentUnits : public testing::Test {
 protected:
  PersistentUnits() : model_(models::parse_gpt2_config(kConfig, "test")), units_(model_) {}

  static inline const Json kConfig{{"model_type", "gpt2"}, {"vocab_size", 20}, {"n_embd", 8},
                                   {"n_layer", 3},         {"n_head", 2},      {"n_positions", 10}};

  // Which units keep their parameters whole in stage 3 on two processes.
  std::vector<bool> whole(int64_t threshold, int64_t most) const {
    const ShardingOptions sharding{
        .stage = kZeroStages[3], .persistence_threshold = threshold, .most_persistent = most};
    std::vector<bool> result;
    for (const UnitPlacement& unit :
         place_units({.units = units_, .sharding = sharding, .num_ranks = 2, .shares_memory = false})) {
      result.push_back(unit.is_kept_whole);
    }
    return result;
  }
  int64_t numel(size_t unit) const { return units_[unit].layout.numel(); }

  models::Gpt2 model_;
  Units units_;
};

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

TEST_F(PersistentUnits, AreTheSmallOnes) {
  EXPECT_EQ(whole(0, kAll), std::vector<bool>(units_.size(), false));
  EXPECT_EQ(whole(kAll, kAll), std::vector<bool>(units_.size(), true));
  const std::vector<bool> small = whole(numel(1), kAll);
  for (size_t u = 0; u < units_.size(); ++u) EXPECT_EQ(small[u], numel(u) < numel(1)) << u;
}

TEST_F(PersistentUnits, AreTogetherNoMoreThanTheModelsThreshold) {
  EXPECT_EQ(whole(kAll, 0), std::vector<bool>(units_.size(), false));
  const std::vector<bool> two = whole(kAll, numel(0) + numel(1));
  for (size_t u = 0; u < 3; ++u) EXPECT_EQ(two[u], u < 2) << u;
  EXPECT_FALSE(whole(kAll, numel(0) + numel(1) - 1)[1]);
}

TEST_F(PersistentUnits, StayOnTheGpuWhenOthersGoToTheHost) {
  const ShardingOptions sharding{.stage = kZeroStages[3],
                                 .persistence_threshold = numel(1),
                                 .offload = {.optimizer_to_host = true, .parameters_to_host = true}};
  for (const UnitPlacement& unit :
       place_units({.units = units_, .sharding = sharding, .num_ranks = 2, .shares_memory = false})) {
    EXPECT_TRUE(unit.has_states_on_host);
    EXPECT_FALSE(unit.is_on_disk);
    EXPECT_EQ(unit.is_kept_on_host, !unit.is_kept_whole);
  }
}

TEST_F(PersistentUnits, GoToTheHostUpToARatioOfTheElements) {
  const ShardingOptions sharding{.stage = kZeroStages[3],
                                 .offload = {.ratio = 0.5, .optimizer_to_host = true, .parameters_to_host = true}};
  const auto placements = place_units({.units = units_, .sharding = sharding, .num_ranks = 2, .shares_memory = false});
  int64_t total = 0;
  int64_t on_host = 0;
  for (size_t u = 0; u < placements.size(); ++u) {
    EXPECT_EQ(placements[u].is_kept_on_host, placements[u].has_states_on_host) << "where they are updated";
    total += numel(u);
    if (placements[u].has_states_on_host) on_host += numel(u);
  }
  EXPECT_GE(2 * on_host, total);
  EXPECT_LT(on_host, total);
}

}  // namespace
}  // namespace strake::training::placement_test
