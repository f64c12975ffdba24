#include "strake/training/best_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "strake/core/error.h"

namespace strake::training::best_model_test {
namespace {

TEST(BestModelTest, TheBestOfAllAndTheBestThatWasKeptAreTwo) {
  BestModel model({});
  const BestModel::Evaluation evaluations[] = {{0.7, 10}, {0.5, 20}, {0.6, 30}, {0.65, 40}};
  for (const BestModel::Evaluation& evaluation : evaluations) {
    model.add(evaluation);
    if (evaluation.step != 20) model.keep(evaluation);
  }
  EXPECT_EQ(model.state().best->step, 20);
  EXPECT_EQ(model.state().kept->step, 30);
  EXPECT_EQ(model.state().kept->metric, 0.6);
}

TEST(BestModelTest, KeepingTellsWhetherItIsTheBest) {
  BestModel model({.larger_is_better = true});
  EXPECT_TRUE(model.keep({0.5, 1}));
  EXPECT_FALSE(model.keep({0.5, 2})) << "the earlier of two equal ones stays";
  EXPECT_TRUE(model.keep({0.6, 3}));
}

TEST(BestModelTest, SmallGainsDoNotRenewPatience) {
  BestModel model({.threshold = 0.1, .patience = 2});
  model.add({1.0, 1});
  model.add({0.95, 2});
  EXPECT_FALSE(model.is_out_of_patience());
  model.add({0.92, 3});
  EXPECT_TRUE(model.is_out_of_patience());
  EXPECT_EQ(model.state().best->step, 3);
}

TEST(BestModelTest, NoNumberIsNeverTheBest) {
  BestModel model({.patience = 3});
  model.add({NAN, 1});
  EXPECT_FALSE(model.keep({NAN, 1}));
  EXPECT_FALSE(model.state().best.has_value());
  model.add({2.0, 2});
  EXPECT_EQ(model.state().best->step, 2);
}

TEST(BestModelTest, TheFirstEvaluationIsNeverOneWithoutGain) {
  BestModel model({.patience = 2});
  model.add({NAN, 1});
  BestModel resumed({.patience = 2});
  ASSERT_TRUE(resumed.restore(best_model_state(to_json(model.state()), "state")));
  for (BestModel* either : {&model, &resumed}) {
    either->add({NAN, 2});
    EXPECT_FALSE(either->is_out_of_patience());
    either->add({NAN, 3});
    EXPECT_TRUE(either->is_out_of_patience());
  }
}

TEST(BestModelTest, InfinityIsNeverTheBest) {
  BestModel model({.larger_is_better = true, .patience = 3});
  model.add({INFINITY, 1});
  EXPECT_FALSE(model.keep({INFINITY, 1}));
  EXPECT_FALSE(model.state().best.has_value());
}

TEST(BestModelTest, OtherDataStartsAnew) {
  BestModel before({.evaluation = {{"crc32c", 7}}});
  before.add({0.25, 3});
  const BestModel::State state = best_model_state(to_json(before.state()), "state");
  EXPECT_FALSE(BestModel({.evaluation = {{"crc32c", 8}}}).restore(state));
  BestModel same({.evaluation = {{"crc32c", 7}}});
  EXPECT_TRUE(same.restore(state));
  EXPECT_EQ(same.state().best->step, 3);
  BestModel::State unknown = state;
  unknown.evaluation = nullptr;
  EXPECT_TRUE(same.restore(unknown));
  EXPECT_EQ(same.state().evaluation, Json({{"crc32c", 7}}));
}

TEST(BestModelTest, AnotherMetricStartsAnew) {
  BestModel losses({.metric = "eval_loss"});
  losses.add({0.25, 3});
  BestModel same({.metric = "eval_loss"});
  EXPECT_TRUE(same.restore(losses.state()));
  EXPECT_EQ(same.state().best->step, 3);
  for (const BestModelRule& rule : {BestModelRule{.metric = "eval_accuracy", .larger_is_better = true},
                                    BestModelRule{.metric = "eval_loss", .larger_is_better = true}}) {
    BestModel other(rule);
    EXPECT_FALSE(other.restore(losses.state()));
    EXPECT_FALSE(other.state().best.has_value());
    EXPECT_EQ(other.state().metric, rule.metric);
  }
}

TEST(BestModelTest, StateSurvivesJson) {
  BestModel model({});
  model.add({0.25, 3});
  const BestModel::State state = best_model_state(to_json(model.state()), "state");
  EXPECT_EQ(state.best->metric, 0.25);
  EXPECT_EQ(state.best->step, 3);
  EXPECT_FALSE(state.kept.has_value());
  EXPECT_EQ(best_model_state(to_json(BestModel::State{}), "state").evaluations_without_gain, 0);
  Json incomplete = to_json(model.state());
  incomplete["best"].erase("step");
  EXPECT_THROW(best_model_state(incomplete, "state"), Error);
}

}  // namespace
}  // namespace strake::training::best_model_test
