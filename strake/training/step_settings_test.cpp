#include "strake/training/step_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strake::training::step_settings_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string changed(const TrainingOptions& before, const TrainingOptions& now, int64_t steps = 10) {
  return changed_settings(step_settings(before, 10), step_settings(now, steps));
}

TEST(StepSettings, SayNothingIfNothingChanged) {
  EXPECT_EQ(changed({}, {}), "");
  EXPECT_EQ(changed({.warmup_ratio = 0.2}, {.warmup_steps = 2}), "") << "the same warm-up";
  EXPECT_EQ(changed_settings(Json(), step_settings({}, 10)), "") << "the checkpoint does not say";
}

TEST(StepSettings, NameWhatChangedWithBothValues) {
  const std::string rate = changed({.learning_rate = 0.5}, {.learning_rate = 0.25});
  EXPECT_THAT(rate, HasSubstr("--learning_rate was 0.5 and is 0.25 now"));
  EXPECT_THAT(rate, HasSubstr("Transformers' Trainer would keep"));
  EXPECT_THAT(changed({}, {.weight_decay = 0.25}), HasSubstr("--weight_decay was 0.0 and is 0.25 now"));
  EXPECT_THAT(changed({}, {.adam_beta1 = 0.5}), HasSubstr("--adam_beta1 was 0.9 and is 0.5 now"));
  EXPECT_THAT(changed({}, {.adam_beta2 = 0.5}), HasSubstr("--adam_beta2 was 0.999 and is 0.5 now"));
  EXPECT_THAT(changed({}, {.adam_epsilon = 0.5}), HasSubstr("--adam_epsilon was 1e-08 and is 0.5 now"));
  EXPECT_THAT(changed({.optim = "sgd", .optim_args = "momentum=0.5"}, {.optim = "sgd"}),
              HasSubstr("momentum was 0.5 and is 0.0 now"));
  const TrainingOptions l2{.configured_optimizer =
                               optim::OptimizerSettings{.weight_decay = kernels::WeightDecay::kInGradient}};
  EXPECT_THAT(changed({}, l2), AllOf(HasSubstr("adam_w_mode was true and is false now"),
                                     HasSubstr("decay of biases and layer norms was false and is true now")));
  EXPECT_THAT(changed({.fp16 = true}, {.fp16 = true, .loss_scaling = {.loss_scale = 64}}),
              HasSubstr("loss_scale was 0.0 and is 64.0 now"));
  const std::string shape = changed({}, {.max_grad_norm = 0.5, .lr_scheduler_type = "cosine", .warmup_ratio = 0.5}, 20);
  EXPECT_THAT(shape, HasSubstr("--max_grad_norm was 1.0 and is 0.5 now"));
  EXPECT_THAT(shape, HasSubstr("--lr_scheduler_type was \"linear\" and is \"cosine\" now"));
  EXPECT_THAT(shape, HasSubstr("--warmup_steps was 0 and is 10 now"));
  EXPECT_THAT(shape, HasSubstr("the run had 10 steps and has 20 now"));
  EXPECT_THAT(shape, Not(HasSubstr("Transformers"))) << "there too these are the flags'";
}

}  // namespace
}  // namespace strake::training::step_settings_test
