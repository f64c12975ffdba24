#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strake/core/memory.h"
#include "strake/data/token_dataset.h"
#include "strake/tasks/sharding_flags.h"
#include "strake/training/memory_plan.h"

namespace strake::tasks {

// The batches of a run, however it is asked to cut them.
struct RunBatches {
  std::function<models::BatchShape(const training::TrainingOptions&)> training;  // the largest micro-batch
  // The largest batch of an evaluation with at most so many sequences at a time. Empty: there is none.
  std::function<models::BatchShape(int64_t sequences)> evaluation;
};

// A training run whose memory is asked for.
struct PlannedRun {
  const models::Model& model;
  training::TrainingOptions options;
  RunBatches batches;
  models::BatchShape batch;       // batches.training(options)
  models::BatchShape evaluation;  // empty: there is none
  int64_t evaluation_rows = 0;    // as of MemoryPlanRequest
  int64_t outputs_of_row = 0;
  int num_ranks = 1;
  int ranks_per_machine = 1;
  training::RankPlacement placement = training::RankPlacement::kThreads;
  bool shares_memory = false;  // of processes, as in MemoryPlanRequest
  int64_t data_bytes = 0;      // of the data for training and evaluation, which every process has
  StageLimits stages;          // which others its configuration may be changed to
  models::PlannedDevice device = models::PlannedDevice::kProcessor;

  bool is_on_gpus() const { return device == models::PlannedDevice::kGpu; }
  int processes_per_machine() const { return placement == training::RankPlacement::kThreads ? 1 : ranks_per_machine; }
};

// Another way to do the same run.
struct RunVariant {
  std::string name;  // "zero-2", "zero-3 with --gradient_checkpointing"
  training::ShardingStage stage;
  bool recomputes = false;
  training::MemoryPlan plan;
  int64_t machine_bytes = 0;  // of tensors of all its ranks in one machine's memory
  int64_t disk_bytes = 0;     // of their scratch files
  // What is asked for, as the run would have to say it.
  training::TrainingOptions options = {};
  models::BatchShape batch = {};
};

// Refers to the run.
training::MemoryPlanRequest request_of(const PlannedRun& run);
// Of all ranks.
double sequences_of_step(const PlannedRun& run);

struct RunSize {
  int64_t ranks = 1;
  int64_t steps = 0;
};
// The micro-batch with most tokens of a run. Of a long one, those of its first epoch and of its first two million
// sequences are looked at.
models::BatchShape largest_batch(const models::Model& model, const data::TokenDataset& dataset,
                                 const training::TrainingOptions& options, const RunSize& size);

// On disk: weights in fp32 whatever the run keeps, and the optimizer's state as the run keeps it.
int64_t checkpoint_bytes(const PlannedRun& run);

// About what the data takes.
int64_t bytes_of(const data::TokenDataset& dataset);

RunVariant plan_of(const PlannedRun& run);
// Stages 0 to 3 and the run's own layout, first without then with recomputation; with as much on disk as the run, and
// only those that a run would not be refused for.
std::vector<RunVariant> stage_variants(const PlannedRun& run);
// What the run takes of what is limited: with all processes of a machine, or the address space of one, and with what
// they take beside tensors.
int64_t needed_bytes(const PlannedRun& run, const RunVariant& variant, const MemoryLimit& limit);
// Of a GPU: what libraries load, kernels work in and the allocator does not get filled. Up to 550 MiB with BERT-base
// and GPT-2, micro-batches of 16,384 tokens, on an H100.
inline constexpr int64_t kBesideTensorsOfGpu = int64_t{640} << 20;
// About what is taken of a machine's memory beside tensors.
int64_t resident_beside_tensors(const PlannedRun& run);
// Of several limits, all of which a run must keep.
using MemoryLimits = std::vector<MemoryLimit>;
bool fits(const PlannedRun& run, const RunVariant& variant, const MemoryLimits& limits);
// Of the variants that fit, the one that costs least: one without copies of --async_save before anything else, if the
// run itself does not fit; a lower stage before a higher one, any stage before
// recomputation, that before smaller micro-batches, of which as many more make the same step, and those before more
// state offloaded than the run has: of GPUs to the host's memory, and then to disk. None: not even single sequences
// with everything on disk fit.
std::optional<RunVariant> cheapest_fit(const PlannedRun& run, const MemoryLimits& limits);

}  // namespace strake::tasks
