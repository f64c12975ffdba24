#include "strake/training/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>

#include "strake/core/test_error.h"

namespace strake::training::options_test {
namespace {

using testing::HasSubstr;

struct Refusal {
  std::function<void(TrainingOptions&)> change;
  std::string text;
};

TEST(TrainingOptions, AreValidByDefault) { EXPECT_NO_THROW(TrainingOptions{}.validate()); }

TEST(TrainingOptions, WarmUpOverAllSteps) {
  const TrainingOptions options{.max_steps = 10, .warmup_ratio = 1};
  EXPECT_NO_THROW(options.validate());
  EXPECT_EQ(options.schedule_options(10).warmup_steps, 10);
}

TEST(TrainingOptions, ALearningRateMayBeZero) {
  const TrainingOptions options{.max_steps = 10, .learning_rate = 0};
  EXPECT_NO_THROW(options.validate());
  EXPECT_EQ(optim::LearningRateSchedule(options.schedule_options(10)).at(5), 0);
}

TEST(TrainingOptions, RefuseImpossibleValuesByFlag) {
  using Options = TrainingOptions;
  const std::vector<Refusal> refusals{
      {[](Options& o) { o.per_device_train_batch_size = 0; }, "--per_device_train_batch_size 0 must be positive"},
      {[](Options& o) { o.per_device_eval_batch_size = -1; }, "--per_device_eval_batch_size -1 must be positive"},
      {[](Options& o) { o.gradient_accumulation_steps = 0; }, "--gradient_accumulation_steps 0 must be positive"},
      {[](Options& o) { o.logging_steps = 0; }, "--logging_steps 0 must be positive"},
      {[](Options& o) { o.save_steps = 0; }, "--save_steps 0 must be positive"},
      {[](Options& o) { o.learning_rate = -1e-5; }, "--learning_rate -1e-05 is negative"},
      {[](Options& o) { o.adam_epsilon = 0; }, "--adam_epsilon 0 must be positive"},
      {[](Options& o) { o.adam_beta1 = 1; }, "--adam_beta1 1 is not in [0, 1)"},
      {[](Options& o) { o.adam_beta2 = -0.5; }, "--adam_beta2 -0.5 is not in [0, 1)"},
      {[](Options& o) { o.warmup_ratio = 1.1; }, "--warmup_ratio 1.1 is not in [0, 1]"},
      {[](Options& o) { o.max_tokens_per_batch = -1; }, "--max_tokens_per_batch -1 is negative"},
      {[](Options& o) { o.weight_decay = -1; }, "--weight_decay -1 is negative"},
      {[](Options& o) { o.max_grad_norm = -1; }, "--max_grad_norm -1 is negative"},
      {[](Options& o) { o.warmup_steps = -1; }, "--warmup_steps -1 is negative"},
      {[](Options& o) { o.max_steps = 0; }, "--max_steps 0 is neither positive nor -1"},
      {[](Options& o) { o.num_train_epochs = 0; }, "--num_train_epochs 0 is not in (0, 1000000000]"},
      {[](Options& o) { o.eval_steps = -1; }, "--eval_steps -1 is negative"},
      {[](Options& o) { o.save_total_limit = -1; }, "--save_total_limit -1 is negative"},
      {[](Options& o) { o.logging_strategy = "never"; }, "--logging_strategy never is none of no, steps, epoch"},
      {[](Options& o) { o.eval_strategy = "epochs"; }, "--eval_strategy epochs is none of no, steps, epoch"},
      {[](Options& o) { o.save_strategy = ""; }, "--save_strategy  is none of no, steps, epoch"}};
  for (const auto& [change, text] : refusals) {
    TrainingOptions options;
    change(options);
    EXPECT_TRUE(error_of([&] { options.validate(); }).says(ErrorKind::kUsage, text));
  }
}

std::string refusal(const TrainingOptions& options) {
  return error_of([&] { options.validate(); }).text;
}

TEST(TrainingOptions, RefuseNumbersThatAreNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  int numbers = 0;
  for (const double value : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    TrainingOptions options{.max_steps = 10};
    TrainingOptions::visit_fields(options, [&](const char* flag, auto& field, const char*) {
      if constexpr (std::is_same_v<decltype(field), double&>) {
        const double valid = std::exchange(field, value);
        EXPECT_EQ(refusal(options), fmt::format("--{} {} is not a finite number", flag, value));
        field = valid;
        ++numbers;
      }
    });
  }
  EXPECT_GE(numbers, 3 * 9) << "nine options, three values each";
}

TEST(TrainingOptions, RefuseContradictions) {
  EXPECT_THAT(refusal({.warmup_ratio = 0.1, .warmup_steps = 5}), HasSubstr("contradict each other"));
  EXPECT_THAT(refusal({.save_strategy = "no", .load_best_model_at_end = true}),
              HasSubstr("--load_best_model_at_end needs the same --save_strategy (no) and --eval_strategy (no)"));
  EXPECT_THAT(refusal({.eval_strategy = "epoch", .load_best_model_at_end = true}), HasSubstr("needs the same"));
  EXPECT_THAT(refusal({.eval_strategy = "steps", .eval_steps = 3, .save_steps = 10, .load_best_model_at_end = true}),
              HasSubstr("--save_steps 10 to be a multiple of --eval_steps 3"));
  EXPECT_THAT(refusal({.learning_rate = 1e39}), HasSubstr("--learning_rate 1e+39 is more than 1e+38"));
  EXPECT_THAT(refusal({.early_stopping_threshold = 0.1}), HasSubstr("0.1 needs --early_stopping_patience"));
  EXPECT_THAT(refusal({.early_stopping_patience = 1}), HasSubstr("--early_stopping_patience 1 needs --eval_strategy"));
}

TEST(TrainingOptions, RefuseOptimizersAndSchedulesByWhatIsWrongWithThem) {
  const auto refused = [](const TrainingOptions& options, const char* text) {
    EXPECT_THAT(refusal(options), HasSubstr(text));
  };
  refused({.optim = "adafactor"}, "--optim 'adafactor' is not supported");
  refused({.optim = "sgd", .optim_args = "beta=1"}, "sgd has no argument 'beta'");
  refused({.lr_scheduler_kwargs = "{"}, "--lr_scheduler_kwargs");
  refused({.lr_scheduler_kwargs = R"({"num_cycles": 2})"}, "schedule 'linear' has no argument 'num_cycles'");
  const std::string cycle = R"({"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3)";
  refused({.optim = "sgd", .lr_scheduler_type = "OneCycle", .lr_scheduler_kwargs = cycle + "}"},
          "--optim sgd has none; turn that off");
  EXPECT_EQ(refusal({.optim = "lion", .lr_scheduler_type = "OneCycle", .lr_scheduler_kwargs = cycle + "}"}),
            "no error");
  EXPECT_EQ(refusal({.optim = "sgd",
                     .lr_scheduler_type = "OneCycle",
                     .lr_scheduler_kwargs = cycle + R"(, "cycle_momentum": false})"}),
            "no error");
  const std::string decay = R"({"num_decay_steps": 10})";
  EXPECT_EQ(refusal({.lr_scheduler_type = "warmup_stable_decay", .lr_scheduler_kwargs = decay}), "no error")
      << "how many steps there are is known later";
  refused({.max_steps = 5, .lr_scheduler_type = "warmup_stable_decay", .lr_scheduler_kwargs = decay},
          "more than all 5 steps");
}

// As TrainerState.compute_steps of Transformers.
TEST(TrainingOptions, StepsBelowOneAreAShareOfAll) {
  const TrainingOptions options{.warmup_steps = 0.1, .logging_steps = 0.04, .eval_steps = 0.25, .save_steps = 7};
  EXPECT_EQ(refusal(options), "no error");
  const StepIntervals intervals = options.step_intervals(30);
  EXPECT_EQ(intervals.logging.steps, 2) << "1.2, rounded up";
  EXPECT_EQ(intervals.evaluation.steps, 8);
  EXPECT_EQ(intervals.saving.steps, 7);
  EXPECT_EQ(options.schedule_options(30).warmup_steps, 3);
  EXPECT_EQ(TrainingOptions{.logging_steps = 0.5}.step_intervals(30).evaluation.steps, 15) << "as logging";
  EXPECT_THAT(refusal({.save_steps = 1.5}), HasSubstr("--save_steps 1.5 is neither a whole number of steps nor"));
  EXPECT_THAT(refusal({.warmup_steps = 1e16}), HasSubstr("--warmup_steps 1e+16 is neither"));
}

TEST(TrainingOptions, TheBestModelNeedsSharesThatFitEachOther) {
  TrainingOptions options{
      .eval_strategy = "steps", .eval_steps = 0.1, .save_steps = 0.2, .load_best_model_at_end = true};
  EXPECT_EQ(refusal(options), "no error") << "how many steps there are is known later";
  EXPECT_EQ(options.step_intervals(50).saving.steps, 10);
  EXPECT_EQ(options.step_intervals(25).evaluation.steps, 3) << "2.5, rounded up";
  EXPECT_EQ(options.step_intervals(25).saving.steps, 6) << "twice as many, and not 5";
  options.eval_steps = 0.08;
  options.max_steps = 25;
  EXPECT_THAT(refusal(options),
              HasSubstr("--save_steps 0.2 to be a multiple of --eval_steps 0.08: of 25 steps they are 5 and 2"));
}

TEST(TrainingOptions, AcceptCombinationsThatMakeSense) {
  EXPECT_EQ(refusal({.num_train_epochs = 0, .max_steps = 10}), "no error");
  EXPECT_EQ(refusal({.max_grad_norm = 0}), "no error") << "0 turns clipping off";
  EXPECT_EQ(refusal({.eval_strategy = "steps", .eval_steps = 5, .save_steps = 10, .load_best_model_at_end = true}),
            "no error");
  EXPECT_EQ(refusal({.eval_strategy = "epoch",
                     .save_strategy = "epoch",
                     .load_best_model_at_end = true,
                     .early_stopping_patience = 2}),
            "no error");
}

TEST(TrainingOptions, NameTheMetricOfTheBestModelAsTransformersDoes) {
  EXPECT_EQ(TrainingOptions{}.best_metric_name(), "eval_loss");
  EXPECT_EQ(TrainingOptions{.metric_for_best_model = "f1"}.best_metric_name(), "eval_f1");
  EXPECT_EQ(TrainingOptions{.metric_for_best_model = "eval_f1"}.best_metric_name(), "eval_f1");
  EXPECT_FALSE(TrainingOptions{}.larger_is_better());
  EXPECT_FALSE(TrainingOptions{.metric_for_best_model = "mse"}.larger_is_better());
  EXPECT_FALSE(TrainingOptions{.metric_for_best_model = "perplexity"}.larger_is_better());
  EXPECT_TRUE(TrainingOptions{.metric_for_best_model = "accuracy"}.larger_is_better());
  TrainingOptions forced{.metric_for_best_model = "accuracy"};
  forced.greater_is_better = false;
  EXPECT_FALSE(forced.larger_is_better());
}

TEST(TrainingOptions, TakeTheDataSeedFromTheSeedUnlessGiven) {
  EXPECT_EQ(TrainingOptions{.seed = 9}.order_seed(), 9U);
  EXPECT_EQ((TrainingOptions{.seed = 9, .data_seed = 4}).order_seed(), 4U);
}

}  // namespace
}  // namespace strake::training::options_test
