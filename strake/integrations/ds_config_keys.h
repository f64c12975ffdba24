#pragma once

#include <span>

#include "strake/integrations/config_schema.h"

namespace strake::integrations {

// Every key of DeepSpeed's ds_config.json at every level, with defaults from its code (deepspeedai/DeepSpeed@edaa7221,
// August 2026). A key is refused if ignoring it would give other weights, or need more memory or traffic, than the user
// asked for; what only reports or stores is accepted with a notice.
const Schema& ds_schema();

// What a scheduler takes; "required" has no default. Defaults from deepspeed/runtime/lr_schedules.py.
struct DsScheduleParameter {
  std::string_view type;
  std::string_view name;
  std::string_view fallback;
};
std::span<const DsScheduleParameter> ds_schedule_parameters();

// What an optimizer takes of optimizer.params that changes what it computes, with the defaults of deepspeed/ops and
// torch.optim.
struct DsOptimizerParameter {
  std::string_view type;
  std::string_view name;
  std::string_view fallback;
};
std::span<const DsOptimizerParameter> ds_optimizer_parameters();

// The parts of the table, one file each.
std::span<const KeyRule> ds_training_keys();   // batch, optimizer, scheduler, precision, communication
std::span<const KeyRule> ds_zero_keys();       // zero_optimization, aio
std::span<const KeyRule> ds_structure_keys();  // activation checkpointing, parallelism, compilation, compression
std::span<const KeyRule> ds_lifecycle_keys();  // observability, checkpoints, elasticity, tuning, curricula

}  // namespace strake::integrations
