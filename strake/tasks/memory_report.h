#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "strake/core/memory.h"
#include "strake/data/token_dataset.h"
#include "strake/training/memory_plan.h"

namespace strake::tasks {

// A training run whose memory is asked for.
struct PlannedRun {
  const models::Model& model;
  training::TrainingOptions options;
  models::BatchShape batch;  // the largest micro-batch
  int num_ranks = 1;
  int ranks_per_machine = 1;
  training::RankPlacement placement = training::RankPlacement::kThreads;
};

// Another way to do the same run.
struct RunVariant {
  std::string name;  // "zero-2", "zero-3 with --gradient_checkpointing"
  training::ShardingStage stage;
  bool recomputes = false;
  int64_t batch_divisor = 1;  // micro-batches are so many times smaller, and as many times more
  training::MemoryPlan plan;
  int64_t machine_bytes = 0;  // of all its ranks on one machine
};

// The micro-batch with most tokens of a run's first epoch.
models::BatchShape largest_batch(const data::TokenDataset& dataset, const training::TrainingOptions& options,
                                 int64_t num_ranks);

RunVariant plan_of(const PlannedRun& run);
// Stages 0 to 3, first without then with recomputation.
std::vector<RunVariant> stage_variants(const PlannedRun& run);
// Of the variants that fit on a machine, the one that costs least: a lower stage before a higher one, any stage before
// recomputation, and that before smaller micro-batches. None: not even single sequences fit.
std::optional<RunVariant> cheapest_fit(const PlannedRun& run, int64_t machine_bytes);

// What is held at the run's highest moment, by use, of a rank and of a machine.
void print_memory(std::ostream& out, const PlannedRun& run, const RunVariant& variant);
// The same for a run with its data, and the machine's limit.
void print_plan(std::ostream& out, const PlannedRun& run, const RunVariant& variant, const MemoryLimit& machine);
void print_variants(std::ostream& out, const std::vector<RunVariant>& variants, int64_t limit_bytes);

// Error (kUsage) with limit and nearest plan that fits, if the plan does not.
void require_fit(const PlannedRun& run, const RunVariant& variant, const MemoryLimit& machine);

}  // namespace strake::tasks
