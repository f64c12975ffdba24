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

}  // namespace

Json step_settings(const TrainingOptions& options, int64_t total_steps) {
  const optim::OptimizerSettings optimizer = options.optimizer_settings();
  return {{"learning_rate", options.learning_rate},
          {"weight_decay", options.weight_decay},
          {"adam_beta1", optimizer.betas.first},
          {"adam_beta2", optimizer.betas.second},
          {"adam_epsilon", optimizer.epsilon},
          {"optim_args", options.optim_args},
          {"max_grad_norm", options.max_grad_norm},
          {"lr_scheduler_type", options.lr_scheduler_type},
          {"lr_scheduler_kwargs", options.lr_scheduler_kwargs},
          {"warmup_steps", options.schedule_options(total_steps).warmup_steps},
          {kTotalSteps, total_steps}};
}

std::string changed_settings(const Json& before, const Json& now) {
  std::vector<std::string> changes;
  bool is_kept_elsewhere = false;
  for (const auto& [key, value] : now.items()) {
    if (!before.is_object() || !before.contains(key) || before[key] == value) continue;
    const std::string was = printable(before[key].dump());
    changes.push_back(key == kTotalSteps ? fmt::format("the run had {} steps and has {} now", was, value.dump())
                                         : fmt::format("--{} was {} and is {} now", key, was, printable(value.dump())));
    is_kept_elsewhere |= std::ranges::find(kKeptByTransformers, key) != kKeptByTransformers.end();
  }
  if (changes.empty()) return "";
  return fmt::format("{}{}", fmt::join(changes, ", "),
                     is_kept_elsewhere ? " (Transformers' Trainer would keep the checkpoint's learning_rate, "
                                         "weight_decay, betas and epsilon)"
                                       : "");
}

}  // namespace strake::training
