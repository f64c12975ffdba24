#include "strake/training/step_settings.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "strake/core/error.h"

namespace strake::training {
namespace {

constexpr const char* kTotalSteps = "total_steps";
// Of these, Transformers' Trainer takes the values that are in the checkpoint's optimizer and scheduler.
constexpr std::array<std::string_view, 5> kKeptByTransformers{"learning_rate", "weight_decay", "adam_beta1",
                                                              "adam_beta2", "adam_epsilon"};

// What flags and ds_config.json both can say, by the name that DeepSpeed or --optim_args has for it.
Json optimizer_values(const TrainingOptions& options) {
  const optim::OptimizerSettings optimizer = options.optimizer_settings();
  const bool is_decoupled = optimizer.weight_decay == kernels::WeightDecay::kDecoupled;
  return {{"adam_w_mode", is_decoupled},
          {"amsgrad", optimizer.amsgrad},
          {"bias_correction", optimizer.bias_correction},
          {"decay of biases and layer norms", options.decays_all()},
          {"lr_decay", optimizer.lr_decay},
          {"initial_accumulator_value", optimizer.initial_accumulator_value},
          {"max_coeff", optimizer.max_coefficient},
          {"min_coeff", optimizer.min_coefficient},
          {"momentum", optimizer.momentum},
          {"dampening", optimizer.dampening},
          {"nesterov", optimizer.nesterov}};
}

Json loss_scaling_values(const optim::LossScaling& scaling) {
  return {{"loss_scale", scaling.loss_scale},
          {"initial_scale_power", scaling.initial_scale_power},
          {"loss_scale_window", scaling.loss_scale_window},
          {"hysteresis", scaling.hysteresis},
          {"consecutive_hysteresis", scaling.consecutive_hysteresis},
          {"min_loss_scale", scaling.min_loss_scale}};
}

// "--learning_rate", but "momentum", which is said by parts of flags and of files.
std::string shown(const std::string& key) {
  constexpr std::array<std::string_view, 10> kFlags{
      "learning_rate", "weight_decay",           "adam_beta1",        "adam_beta2",          "adam_epsilon",
      "max_grad_norm", "label_smoothing_factor", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"};
  if (key == "kernels") return "what computes, and so how sums are rounded,";
  return std::ranges::find(kFlags, key) != kFlags.end() ? "--" + key : key;
}

}  // namespace

Json step_settings(const TrainingOptions& options, int64_t total_steps) {
  const optim::OptimizerSettings optimizer = options.optimizer_settings();
  Json settings{{"learning_rate", options.learning_rate},
                {"weight_decay", options.weight_decay},
                {"adam_beta1", optimizer.betas.first},
                {"adam_beta2", optimizer.betas.second},
                {"adam_epsilon", optimizer.epsilon},
                {"max_grad_norm", options.max_grad_norm},
                {"label_smoothing_factor", options.label_smoothing_factor},
                {"lr_scheduler_type", options.lr_scheduler_type},
                {"lr_scheduler_kwargs", options.lr_scheduler_kwargs},
                {"warmup_steps", options.schedule_options(total_steps).warmup_steps},
                {kTotalSteps, total_steps}};
  settings.update(optimizer_values(options));
  if (options.precision() == Precision::kFp16) settings.update(loss_scaling_values(options.loss_scaling));
  return settings;
}

std::string changed_settings(const Json& before, const Json& now) {
  std::vector<std::string> changes;
  bool is_kept_elsewhere = false;
  for (const auto& [key, value] : now.items()) {
    if (!before.is_object() || !before.contains(key) || before[key] == value) continue;
    const std::string was = printable(before[key].dump());
    changes.push_back(key == kTotalSteps
                          ? fmt::format("the run had {} steps and has {} now", was, value.dump())
                          : fmt::format("{} was {} and is {} now", shown(key), was, printable(value.dump())));
    is_kept_elsewhere |= std::ranges::find(kKeptByTransformers, key) != kKeptByTransformers.end();
  }
  if (changes.empty()) return "";
  return fmt::format("{}{}", fmt::join(changes, ", "),
                     is_kept_elsewhere ? " (Transformers' Trainer would keep the checkpoint's learning_rate, "
                                         "weight_decay, betas and epsilon)"
                                       : "");
}

}  // namespace strake::training
