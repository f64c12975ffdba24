#include "strake/training/options.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "strake/core/error.h"

namespace strake::training {

std::string TrainingOptions::best_metric_name() const {
  if (metric_for_best_model.empty()) return "eval_loss";
  return metric_for_best_model.starts_with("eval_") ? metric_for_best_model : "eval_" + metric_for_best_model;
}

bool TrainingOptions::larger_is_better() const {
  if (greater_is_better) return *greater_is_better;
  const std::string name = best_metric_name();
  return !name.ends_with("loss") && !name.ends_with("mse") && !name.ends_with("mae") && !name.ends_with("perplexity");
}

Interval parse_interval(const std::string& text, const char* flag) {
  if (text == "no") return Interval::kNo;
  if (text == "steps") return Interval::kSteps;
  if (text == "epoch") return Interval::kEpoch;
  require(text != "best" || std::string_view(flag) != "save_strategy", ErrorKind::kUsage,
          "--save_strategy best is not there yet: say steps or epoch, and --load_best_model_at_end with "
          "--save_total_limit keeps the best checkpoint");
  fail(ErrorKind::kUsage, "--{} {} is none of no, steps, epoch", flag, text);
}

std::vector<Precision> TrainingOptions::weights_on_disk() const {
  std::vector<Precision> arrays;
  if (has_master_copies() || sharding.offload.parameters) arrays.push_back(master);
  if (has_master_copies() && sharding.offload.parameters) arrays.push_back(precision());
  return arrays;
}

std::string TrainingOptions::precision_text() const {
  std::string text = to_string(precision());
  if (master == Precision::kFp32) return text;
  return text + (state_precision() == Precision::kFp32 ? ", also master weights; optimizer state in fp32"
                                                       : ", also master weights and optimizer state");
}

optim::OptimizerSettings TrainingOptions::optimizer_settings() const {
  if (configured_optimizer) return *configured_optimizer;
  return optim::optimizer_settings(
      {.name = optim, .arguments = optim_args, .betas = {adam_beta1, adam_beta2}, .epsilon = adam_epsilon});
}

optim::ScheduleOptions TrainingOptions::schedule_options(int64_t total_steps) const {
  return {
      .type = lr_scheduler_type,
      .learning_rate = learning_rate,
      .warmup_steps = optim::resolve_warmup_steps({.steps = warmup_steps, .ratio = warmup_ratio}, total_steps),
      .total_steps = total_steps,
      .kwargs = lr_scheduler_kwargs.empty() ? Json::object() : parse_json(lr_scheduler_kwargs, "--lr_scheduler_kwargs"),
      .kwargs_source = lr_scheduler_kwargs_source};
}

StepIntervals TrainingOptions::step_intervals(int64_t total_steps) const {
  const auto steps = [total_steps](double given) {
    const double count = given < 1 ? std::ceil(given * static_cast<double>(total_steps)) : given;
    return std::max<int64_t>(1, static_cast<int64_t>(count));
  };
  const double eval_every = eval_steps > 0 ? eval_steps : logging_steps;
  StepIntervals intervals{.logging = {parse_interval(logging_strategy, "logging_strategy"), steps(logging_steps)},
                          .evaluation = {parse_interval(eval_strategy, "eval_strategy"), steps(eval_every)},
                          .saving = {parse_interval(save_strategy, "save_strategy"), steps(save_steps)}};
  if (load_best_model_at_end && save_steps < 1 && eval_every < 1) {
    // Shares of which one is a multiple of the other, as Transformers asks for, stay that where steps are rounded.
    const double multiple = std::round(save_steps / eval_every);
    constexpr double kRounding = 1e-6;
    if (multiple >= 1 && std::abs(save_steps / eval_every - multiple) < kRounding) {
      intervals.saving.steps = intervals.evaluation.steps * static_cast<int64_t>(multiple);
    }
  }
  const bool must_fit = load_best_model_at_end && intervals.saving.interval == Interval::kSteps;
  require(!must_fit || intervals.saving.steps % intervals.evaluation.steps == 0, ErrorKind::kUsage,
          "--load_best_model_at_end needs --save_steps {} to be a multiple of --eval_steps {}{}", save_steps,
          eval_every,
          save_steps >= 1 && eval_every >= 1 ? ""
                                             : fmt::format(": of {} steps they are {} and {}", total_steps,
                                                           intervals.saving.steps, intervals.evaluation.steps));
  return intervals;
}

namespace {

// Or, below 1, shares of all steps.
void require_whole_steps(const TrainingOptions& options) {
  for (const auto& [value, flag] : {std::pair{options.logging_steps, "logging_steps"},
                                    {options.eval_steps, "eval_steps"},
                                    {options.save_steps, "save_steps"},
                                    {options.warmup_steps, "warmup_steps"}}) {
    constexpr double kMostSteps = 1e15;  // exact as a double
    require(value < 1 || (value <= kMostSteps && value == std::floor(value)), ErrorKind::kUsage,
            "--{} {} is neither a whole number of steps nor, below 1, a share of all", flag, value);
  }
}

}  // namespace

void TrainingOptions::validate() const {
  validate_but_updates();
  const optim::Optimizer optimizer(optimizer_settings());
  require(master != Precision::kFp16 || optimizer.settings().rule == optim::OptimizerRule::kAdam, ErrorKind::kConfig,
          "fp16_master_weights_and_grads is there for Adam and AdamW, as in DeepSpeed, and the optimizer is {}", optim);
  const optim::LearningRateSchedule schedule(schedule_options(std::max<int64_t>(0, max_steps)));
  require(!schedule.cycles_betas() || optimizer.has_betas(), ErrorKind::kUsage,
          "--lr_scheduler_type {} cycles the betas of the optimizer, and --optim {} has none; turn that off by "
          "--lr_scheduler_kwargs with \"cycle_momentum\": false",
          lr_scheduler_type, optim);
}

void TrainingOptions::validate_but_updates() const {
  visit_fields(*this, [](const char* flag, const auto& value, const char*) {
    if constexpr (std::is_same_v<decltype(value), const double&>) {
      require(std::isfinite(value), ErrorKind::kUsage, "--{} {} is not a finite number", flag, value);
    }
  });
  const auto positive = [](double value, const char* flag) {
    require(value > 0, ErrorKind::kUsage, "--{} {} must be positive", flag, value);
  };
  const auto share = [](double value, const char* flag) {
    require(value >= 0 && value < 1, ErrorKind::kUsage, "--{} {} is not in [0, 1)", flag, value);
  };
  positive(static_cast<double>(per_device_train_batch_size), "per_device_train_batch_size");
  positive(static_cast<double>(per_device_eval_batch_size), "per_device_eval_batch_size");
  positive(static_cast<double>(gradient_accumulation_steps), "gradient_accumulation_steps");
  const auto at_most = [](int64_t value, int64_t most, const char* flag) {
    require(value <= most, ErrorKind::kUsage, "--{} {} is more than {}", flag, value, most);
  };
  at_most(per_device_train_batch_size, 1'000'000'000, "per_device_train_batch_size");
  at_most(per_device_eval_batch_size, 1'000'000'000, "per_device_eval_batch_size");
  at_most(gradient_accumulation_steps, kMostAccumulationSteps, "gradient_accumulation_steps");
  positive(logging_steps, "logging_steps");
  positive(save_steps, "save_steps");
  require(!bf16 || !fp16, ErrorKind::kUsage, "--bf16 and --fp16 contradict each other");
  require(learning_rate >= 0, ErrorKind::kUsage, "--learning_rate {} is negative", learning_rate);
  require(learning_rate <= kHighestLearningRate, ErrorKind::kUsage, "--learning_rate {} is more than {}", learning_rate,
          kHighestLearningRate);
  positive(adam_epsilon, "adam_epsilon");
  share(adam_beta1, "adam_beta1");
  share(adam_beta2, "adam_beta2");
  require(warmup_ratio >= 0 && warmup_ratio <= 1, ErrorKind::kUsage, "--warmup_ratio {} is not in [0, 1]",
          warmup_ratio);
  require(max_tokens_per_batch >= 0, ErrorKind::kUsage, "--max_tokens_per_batch {} is negative", max_tokens_per_batch);
  require(weight_decay >= 0, ErrorKind::kUsage, "--weight_decay {} is negative", weight_decay);
  require(max_grad_norm >= 0, ErrorKind::kUsage, "--max_grad_norm {} is negative", max_grad_norm);
  require(label_smoothing_factor >= 0 && label_smoothing_factor <= 1, ErrorKind::kUsage,
          "--label_smoothing_factor {} is not in [0, 1]", label_smoothing_factor);
  require(warmup_steps >= 0, ErrorKind::kUsage, "--warmup_steps {} is negative", warmup_steps);
  require(eval_steps >= 0, ErrorKind::kUsage, "--eval_steps {} is negative", eval_steps);
  require_whole_steps(*this);
  require(max_steps > 0 || max_steps == -1, ErrorKind::kUsage, "--max_steps {} is neither positive nor -1", max_steps);
  constexpr double kMostEpochs = 1e9;
  require(max_steps > 0 || (num_train_epochs > 0 && num_train_epochs <= kMostEpochs), ErrorKind::kUsage,
          "--num_train_epochs {} is not in (0, {:.0f}]", num_train_epochs, kMostEpochs);
  require(frozen.freeze.empty() || frozen.train_only.empty(), ErrorKind::kUsage,
          "--freeze {} and --train_only {} contradict each other", printable(frozen.freeze),
          printable(frozen.train_only));
  require(warmup_steps == 0 || warmup_ratio == 0, ErrorKind::kUsage,
          "--warmup_steps {} and --warmup_ratio {} contradict each other", warmup_steps, warmup_ratio);
  validate_intervals();
}

void TrainingOptions::validate_intervals() const {
  parse_interval(logging_strategy, "logging_strategy");
  const Interval eval = parse_interval(eval_strategy, "eval_strategy");
  const Interval save = parse_interval(save_strategy, "save_strategy");
  require(save_total_limit >= 0, ErrorKind::kUsage, "--save_total_limit {} is negative", save_total_limit);
  require(!load_best_model_at_end || (eval == save && eval != Interval::kNo), ErrorKind::kUsage,
          "--load_best_model_at_end needs the same --save_strategy ({}) and --eval_strategy ({}), not no",
          save_strategy, eval_strategy);
  const bool is_share = save_steps < 1 || (eval_steps > 0 ? eval_steps : logging_steps) < 1;
  if (max_steps > 0 || !is_share) step_intervals(std::max<int64_t>(1, max_steps));  // else the number is known later
  require(eval_delay >= 0, ErrorKind::kUsage, "--eval_delay {} is negative", eval_delay);
  require(early_stopping_patience >= 0, ErrorKind::kUsage, "--early_stopping_patience {} is negative",
          early_stopping_patience);
  require(early_stopping_threshold >= 0, ErrorKind::kUsage, "--early_stopping_threshold {} is negative",
          early_stopping_threshold);
  require(early_stopping_patience > 0 || early_stopping_threshold == 0, ErrorKind::kUsage,
          "--early_stopping_threshold {} needs --early_stopping_patience", early_stopping_threshold);
  require(early_stopping_patience == 0 || eval != Interval::kNo, ErrorKind::kUsage,
          "--early_stopping_patience {} needs --eval_strategy steps or epoch", early_stopping_patience);
}

}  // namespace strake::training
