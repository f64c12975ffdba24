#pragma once

#include <optional>
#include <ostream>

#include "strake/tasks/run_variants.h"
#include "strake/training/step_time.h"

namespace strake::tasks {

// What is held at the run's highest moment, by use, of a rank and of a machine, and what goes to its disk.
void print_memory(std::ostream& out, const PlannedRun& run, const RunVariant& variant);
// The same for a run with its data, and its limits.
void print_plan(std::ostream& out, const PlannedRun& run, const RunVariant& variant, const MemoryLimits& limits);
void print_limits(std::ostream& out, const MemoryLimits& limits);
// With the time of a step, if speeds are known.
void print_variants(std::ostream& out, const PlannedRun& run, const MemoryLimits& limits,
                    const std::optional<training::RankSpeed>& speed);

// Error (kUsage) with the limit that is exceeded and the nearest plan that fits, if the plan does not.
void require_fit(const PlannedRun& run, const RunVariant& variant, const MemoryLimits& limits);

}  // namespace strake::tasks
