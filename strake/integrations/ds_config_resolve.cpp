#include "strake/integrations/ds_config_resolve.h"

#include <algorithm>

#include "strake/core/error.h"
#include "strake/integrations/ds_config_keys.h"
#include "strake/integrations/ds_config_resolver.h"
#include "strake/integrations/ds_config_settings.h"

namespace strake::integrations {
namespace {

// Settings that follow from others or were set for nothing come after their rule.
std::vector<DsRow> make_rows(const DsSettings& settings) {
  std::vector<DsRow> rows;
  for (const KeyRule& rule : ds_schema().rules) {
    const auto found = settings.find(std::string(rule.path));
    if (found == settings.end()) continue;
    rows.push_back({.key = found->first, .value = found->second.value, .origin = found->second.origin});
  }
  return rows;
}

}  // namespace

ResolvedDsConfig resolve(const CheckedValues& file, const ResolveInputs& inputs) {
  DsResolver resolver(file, inputs);
  const DsSettings settings = resolver.run();
  std::vector<std::string> notices = file.notices;
  notices.insert(notices.end(), resolver.notices().begin(), resolver.notices().end());
  DsConfig config;
  try {
    config = typed_config(settings);
  } catch (Error& error) {
    error.add_context("as " + file.source + " has it");
    throw;
  }
  return {
      .source = file.source, .config = std::move(config), .rows = make_rows(settings), .notices = std::move(notices)};
}

std::string format_table(const std::vector<DsRow>& rows) {
  size_t key_width = 0;
  size_t value_width = 0;
  constexpr size_t kWidestValue = 24;
  for (const DsRow& row : rows) {
    key_width = std::max(key_width, row.key.size());
    value_width = std::max(value_width, std::min(row.value.dump().size(), kWidestValue));
  }
  std::string table;
  for (const DsRow& row : rows)
    table +=
        fmt::format("{:<{}}  {:<{}}  {}\n", row.key, key_width, printable(row.value.dump()), value_width, row.origin);
  return table;
}

nlohmann::ordered_json to_json(const ResolvedDsConfig& resolved) {
  auto settings = nlohmann::ordered_json::object();
  for (const DsRow& row : resolved.rows)
    settings[row.key] = {{"value", nlohmann::ordered_json(row.value)}, {"from", row.origin}};
  return {{"source", resolved.source},
          {"deepspeed", "edaa7221 (2026-08-22)"},  // the version whose keys and defaults these are
          {"settings", settings},
          {"notices", resolved.notices}};
}

namespace {

const char* name_of(optim::OptimizerRule rule) {
  switch (rule) {
    case optim::OptimizerRule::kAdam:
      return "adamw_torch";
    case optim::OptimizerRule::kAdagrad:
      return "adagrad";
    case optim::OptimizerRule::kLion:
      return "lion";
    case optim::OptimizerRule::kLamb:
      return "lamb";
    case optim::OptimizerRule::kSgd:
      return "sgd";
  }
  return "";
}

}  // namespace

void apply(const DsConfig& config, training::TrainingOptions& options) {
  options.per_device_train_batch_size = config.train_micro_batch_size_per_gpu;
  options.gradient_accumulation_steps = config.gradient_accumulation_steps;
  options.dataloader_drop_last = config.dataloader_drop_last;
  options.max_grad_norm = config.gradient_clipping;
  options.bf16 = config.compute_dtype == Precision::kBf16;
  options.fp16 = config.compute_dtype == Precision::kFp16;
  options.loss_scaling = config.loss_scaling;
  options.reduction = config.communication_dtype.value_or(Precision::kFp32);
  options.master = config.master_dtype;
  options.accumulation = config.grad_accum_dtype.value_or(config.master_dtype);
  options.checkpoints_on_host = config.cpu_checkpointing;
  options.async_save |= config.async_save;
  if (config.scheduler) {
    options.lr_scheduler_type = config.scheduler->type;
    options.lr_scheduler_kwargs = config.scheduler->params.dump();
    options.lr_scheduler_kwargs_source = "scheduler.params";
  }
  if (!config.optimizer) return;
  const optim::OptimizerSettings& settings = config.optimizer->settings;
  options.learning_rate = config.optimizer->learning_rate;
  options.weight_decay = config.optimizer->weight_decay;
  options.optim = name_of(settings.rule);
  options.adam_beta1 = settings.betas.first;
  options.adam_beta2 = settings.betas.second;
  options.adam_epsilon = settings.epsilon;
  options.configured_optimizer = settings;
}

}  // namespace strake::integrations
