#pragma once

#include <cstdint>
#include <string>

#include "strake/core/json.h"
#include "strake/training/options.h"

// Settings of optimizer, loss scale and schedule, as resolved: other than what a run's fingerprint holds, they may
// change when it is resumed, and what is said then is used for the steps that follow.
namespace strake::training {

// `total_steps` is that of the whole run, on which schedules depend.
Json step_settings(const TrainingOptions& options, int64_t total_steps);

// For people: what differs, with both values. Empty if nothing does, or if `before` is null, as it is of a checkpoint
// that does not say.
std::string changed_settings(const Json& before, const Json& now);

}  // namespace strake::training
