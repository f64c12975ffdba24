#include "strake/optim/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "strake/core/test_error.h"

namespace strake::optim::learning_rate_test {
namespace {

// Made by tools/make_schedule_fixture.py from Transformers itself.
Json fixture() {
  return read_json(std::filesystem::path(STRAKE_SOURCE_DIR) / "strake/optim/testdata/learning_rates.json",
                   kMaxConfigBytes);
}

std::string error_of(const ScheduleOptions& options) {
  return strake::error_of([&] { LearningRateSchedule schedule(options); }).text_of(ErrorKind::kConfig);
}

TEST(LearningRateSchedule, EqualsTransformersAtEveryStep) {
  const Json cases = fixture().at("schedules");
  ASSERT_GT(cases.size(), 20U);
  for (const Json& expected : cases) {
    SCOPED_TRACE(expected.dump().substr(0, 120));
    const LearningRateSchedule schedule({.type = expected.at("type"),
                                         .learning_rate = expected.at("learning_rate"),
                                         .warmup_steps = expected.at("warmup_steps"),
                                         .total_steps = expected.at("total_steps"),
                                         .kwargs = expected.at("kwargs")});
    int64_t step = 0;
    for (const double rate : expected.at("rates").get<std::vector<double>>()) {
      // Same operations in double precision; cos and pow may differ in the last bit between libraries. A cosine that
      // ends at 0 leaves a difference of near-equal numbers there, hence the share of the peak.
      const double peak = expected.at("learning_rate");
      EXPECT_NEAR(schedule.at(step), rate, 1e-12 * rate + 1e-16 * peak) << "step " << step;
      ++step;
    }
    EXPECT_EQ(step, 24);
  }
}

TEST(LearningRateSchedule, EqualsDeepSpeedAtEveryStep) {
  const Json cases = fixture().at("deepspeed");
  ASSERT_GT(cases.size(), 15U);
  for (const Json& expected : cases) {
    SCOPED_TRACE(expected.dump().substr(0, 160));
    const LearningRateSchedule schedule({.type = expected.at("type"),
                                         .learning_rate = expected.at("learning_rate"),
                                         .total_steps = 24,
                                         .kwargs = expected.at("kwargs")});
    const auto rates = expected.at("rates").get<std::vector<double>>();
    ASSERT_EQ(rates.size(), 24U);
    // Same operations in double precision; log and cos may differ in the last bit between libraries.
    for (size_t i = 0; i < rates.size(); ++i) {
      EXPECT_NEAR(schedule.at(static_cast<int64_t>(i)), rates[i], 1e-12 * rates[i]) << "step " << i;
    }
    EXPECT_EQ(schedule.cycles_betas(), expected.contains("betas"));
    for (size_t i = 0; schedule.cycles_betas() && i < rates.size(); ++i) {
      const std::optional<Betas> betas = schedule.betas_at(static_cast<int64_t>(i));
      EXPECT_NEAR(betas->first, expected["betas"][i][0].get<double>(), 1e-12) << "step " << i;
      EXPECT_EQ(betas->second, expected["betas"][i][1].get<double>()) << "step " << i;
    }
  }
}

TEST(LearningRateSchedule, WarmsUpAsDeepSpeedsFormulasSay) {
  // Two updates at the lowest rate: before the scheduler's first step, and at its iteration 0 with log(1) = 0.
  const LearningRateSchedule logarithmic(
      {.type = "WarmupLR", .learning_rate = 4, .kwargs = {{"warmup_num_steps", 16}, {"warmup_min_lr", 1}}});
  EXPECT_EQ(logarithmic.at(0), 1);
  EXPECT_EQ(logarithmic.at(1), 1);
  EXPECT_NEAR(logarithmic.at(4), 1 + 3 * 0.5, 1e-12);  // log(4) / log(16)
  EXPECT_EQ(logarithmic.at(17), 4);
  const LearningRateSchedule cycle({.type = "OneCycle",
                                    .kwargs = {{"cycle_min_lr", 1},
                                               {"cycle_max_lr", 3},
                                               {"cycle_first_step_size", 4},
                                               {"decay_step_size", 1},
                                               {"decay_lr_rate", 1}}});
  EXPECT_EQ(cycle.at(2), 2);
  EXPECT_EQ(cycle.at(4), 3);
  EXPECT_EQ(cycle.at(6), 2);
  EXPECT_EQ(cycle.at(8), 1);
  EXPECT_EQ(cycle.at(10), 1.0 / 3);  // iteration 9: two intervals after the cycle of 8
  EXPECT_FALSE(LearningRateSchedule({.type = "WarmupLR"}).betas_at(3).has_value());
}

TEST(LearningRateSchedule, DeepSpeedsArgumentsAreChecked) {
  EXPECT_THAT(error_of({.type = "WarmupDecayLR"}), testing::HasSubstr("total_num_steps is needed"));
  EXPECT_THAT(error_of({.type = "WarmupCosineLR"}), testing::HasSubstr("total_num_steps is needed"));
  EXPECT_THAT(error_of({.type = "WarmupLR", .kwargs = {{"warmup_num_steps", -1}}}),
              testing::HasSubstr("warmup_num_steps=-1 must be 0 or more"));
  EXPECT_THAT(error_of({.type = "WarmupLR", .kwargs = {{"warmup_type", "cosine"}}}), testing::HasSubstr("log, linear"));
  EXPECT_THAT(error_of({.type = "WarmupLR", .kwargs = {{"warmup_steps", 3}}}), testing::HasSubstr("has no argument"));
  EXPECT_THAT(error_of({.type = "OneCycle", .kwargs = {{"cycle_min_lr", 1}}}),
              testing::HasSubstr("cycle_max_lr is needed"));
  const Json cycle{{"cycle_min_lr", 1}, {"cycle_max_lr", 2}, {"cycle_first_step_size", 0}};
  EXPECT_THAT(error_of({.type = "OneCycle", .kwargs = cycle}), testing::HasSubstr("cycle_first_step_size=0"));
  const Json growing{{"cycle_min_lr", 1},
                     {"cycle_max_lr", 2},
                     {"cycle_first_step_size", 2},
                     {"decay_step_size", 1},
                     {"decay_mom_rate", 0.01}};
  EXPECT_THAT(error_of({.type = "OneCycle", .total_steps = 100, .kwargs = growing}),
              testing::HasSubstr("by the last step"));
  EXPECT_THAT(error_of({.type = "OneCycle", .total_steps = 10, .kwargs = growing}), testing::HasSubstr("no error"));
  EXPECT_THAT(error_of({.type = "LRRangeTest", .kwargs = {{"lr_range_test_step_size", 0}}}),
              testing::HasSubstr("must be positive"));
  EXPECT_THAT(error_of({.type = "warmuplr"}), testing::HasSubstr("WarmupLR"));
}

TEST(LearningRateSchedule, DeepSpeedsWarmUpCanBeAskedForAsThatOfOthers) {
  const LearningRateSchedule asked({.type = "WarmupLR", .learning_rate = 4, .warmup_steps = 16});
  const LearningRateSchedule named({.type = "WarmupLR", .learning_rate = 4, .kwargs = {{"warmup_num_steps", 16}}});
  for (int64_t step = 0; step < 20; ++step) EXPECT_EQ(asked.at(step), named.at(step)) << step;
  EXPECT_NE(asked.at(10), LearningRateSchedule({.type = "WarmupLR", .learning_rate = 4}).at(10));
  EXPECT_THAT(error_of({.type = "WarmupLR", .warmup_steps = 5, .kwargs = {{"warmup_num_steps", 16}}}),
              testing::HasSubstr("warmup_num_steps=16 and a warm-up of 5 steps"));
  EXPECT_EQ(error_of({.type = "WarmupLR", .warmup_steps = 16, .kwargs = {{"warmup_num_steps", 16}}}), "no error");
  EXPECT_THAT(error_of({.type = "LRRangeTest", .warmup_steps = 5}), testing::HasSubstr("has no warm-up"));
}

TEST(LearningRateSchedule, SaysWhetherThePeakCounts) {
  EXPECT_FALSE(LearningRateSchedule({.type = "linear", .total_steps = 3}).has_rates_of_its_own());
  EXPECT_FALSE(LearningRateSchedule({.type = "WarmupLR"}).has_rates_of_its_own());
  EXPECT_TRUE(LearningRateSchedule({.type = "WarmupLR", .kwargs = {{"warmup_max_lr", 1}}}).has_rates_of_its_own());
  EXPECT_FALSE(LearningRateSchedule({.type = "WarmupLR", .learning_rate = 1, .kwargs = {{"warmup_max_lr", 1}}})
                   .has_rates_of_its_own())
      << "it is the peak";
  EXPECT_TRUE(LearningRateSchedule({.type = "LRRangeTest"}).has_rates_of_its_own());
}

TEST(LearningRateSchedule, WarmupStepsEqualTrainingArguments) {
  const Json cases = fixture().at("warmups");
  ASSERT_EQ(cases.size(), 8U);
  for (const Json& expected : cases) {
    const WarmupOptions options{.steps = expected.at("warmup_steps")};
    EXPECT_EQ(resolve_warmup_steps(options, expected.at("total_steps")), expected.at("result").get<int64_t>())
        << expected.dump();
  }
  EXPECT_EQ(resolve_warmup_steps({.ratio = 0.06}, 1001), 61);  // rounded up
  EXPECT_EQ(resolve_warmup_steps({.ratio = 1.0}, 10), 10);
  EXPECT_EQ(resolve_warmup_steps({.steps = 5, .ratio = 0.5}, 100), 5);  // steps win, as in Transformers 4
  EXPECT_THROW(resolve_warmup_steps({.steps = -1}, 10), Error);
  EXPECT_THROW(resolve_warmup_steps({.ratio = 1.5}, 10), Error);
}

TEST(LearningRateSchedule, PolynomialWithWarmupOfTheWholeRunEndsAtItsEnd) {
  // Transformers divides by zero here.
  const LearningRateSchedule schedule(
      {.type = "polynomial", .learning_rate = 1e-3, .warmup_steps = 10, .total_steps = 10});
  EXPECT_DOUBLE_EQ(schedule.at(10), 1e-7);
}

TEST(LearningRateSchedule, UnknownTypesAreRefusedWithTheList) {
  EXPECT_THAT(error_of({.type = "cosin"}),
              testing::AllOf(testing::HasSubstr("did you mean 'cosine'"), testing::HasSubstr("warmup_stable_decay")));
  EXPECT_THAT(error_of({.type = "reduce_lr_on_plateau"}), testing::HasSubstr("depends on measured losses"));
  EXPECT_THAT(error_of({.type = "greedy"}), testing::HasSubstr("depends on measured losses"));
}

TEST(LearningRateSchedule, ArgumentsAreCheckedAgainstTheSchedule) {
  EXPECT_THAT(error_of({.type = "linear", .kwargs = {{"num_cycles", 2}}}), testing::HasSubstr("it has: none"));
  EXPECT_THAT(error_of({.type = "polynomial", .kwargs = {{"pwer", 2}}}), testing::HasSubstr("did you mean 'power'"));
  EXPECT_THAT(error_of({.type = "polynomial", .kwargs = {{"lr_end", 1e-3}}}), testing::HasSubstr("must be smaller"));
  EXPECT_THAT(error_of({.type = "cosine", .kwargs = {{"num_cycles", "two"}}}), testing::HasSubstr("num_cycles"));
  EXPECT_THAT(error_of({.type = "cosine", .kwargs = {{"num_cycles", -1}}}), testing::HasSubstr("from 0 on"));
  EXPECT_THAT(error_of({.type = "cosine", .kwargs = Json::array()}), testing::HasSubstr("JSON object"));
  EXPECT_THAT(error_of({.type = "cosine_with_min_lr"}), testing::HasSubstr("exactly one of"));
  EXPECT_THAT(error_of({.type = "cosine_with_min_lr", .kwargs = {{"min_lr", 1e-6}, {"min_lr_rate", 0.1}}}),
              testing::HasSubstr("exactly one of"));
  EXPECT_THAT(error_of({.type = "warmup_stable_decay"}), testing::HasSubstr("num_decay_steps is needed"));
  EXPECT_THAT(error_of({.type = "warmup_stable_decay", .total_steps = 10, .kwargs = {{"num_decay_steps", 11}}}),
              testing::HasSubstr("more than all 10 steps"));
  EXPECT_THAT(error_of({.type = "warmup_stable_decay", .warmup_steps = 5, .kwargs = {{"num_decay_steps", INT64_MAX}}}),
              testing::HasSubstr("num_decay_steps=9223372036854775807 is more than 1000000000000000"));
  EXPECT_THAT(error_of({.type = "warmup_stable_decay",
                        .total_steps = 10,
                        .kwargs = {{"num_decay_steps", 1}, {"decay_type", "square"}}}),
              testing::HasSubstr("linear, cosine, 1-sqrt"));
  EXPECT_THAT(error_of({.type = "inverse_sqrt", .kwargs = {{"timescale", 0}}}), testing::HasSubstr("positive"));
  EXPECT_THAT(error_of({.learning_rate = -1}), testing::HasSubstr("learning_rate=-1"));
  EXPECT_THAT(error_of({.warmup_steps = -1}), testing::HasSubstr("warm-up steps"));
}

}  // namespace
}  // namespace strake::optim::learning_rate_test
