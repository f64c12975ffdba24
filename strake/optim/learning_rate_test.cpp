#include "strake/optim/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace strake::optim {
namespace {

// Made by tools/make_schedule_fixture.py from Transformers itself.
Json fixture() {
  return read_json(std::filesystem::path(STRAKE_SOURCE_DIR) / "strake/optim/testdata/learning_rates.json",
                   kMaxConfigBytes);
}

std::string error_of(const ScheduleOptions& options) {
  try {
    LearningRateSchedule schedule(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
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
  EXPECT_THAT(error_of({.type = "warmup_stable_decay",
                        .total_steps = 10,
                        .kwargs = {{"num_decay_steps", 1}, {"decay_type", "square"}}}),
              testing::HasSubstr("linear, cosine, 1-sqrt"));
  EXPECT_THAT(error_of({.type = "inverse_sqrt", .kwargs = {{"timescale", 0}}}), testing::HasSubstr("positive"));
  EXPECT_THAT(error_of({.learning_rate = -1}), testing::HasSubstr("learning_rate=-1"));
  EXPECT_THAT(error_of({.warmup_steps = -1}), testing::HasSubstr("warm-up steps"));
}

}  // namespace
}  // namespace strake::optim
