#pragma once

#include <cstdint>
#include <vector>

#include "strake/models/memory_meter.h"
#include "strake/models/model.h"
#include "strake/models/planned_graph.h"
#include "strake/training/options.h"
#include "strake/training/placement.h"

namespace strake::training {

enum class RankPlacement { kThreads, kProcesses };

struct MemoryPlanRequest {
  const models::Model& model;
  const TrainingOptions& options;  // sharding, precision, optimizer, recomputation, accumulation
  models::BatchShape batch;        // the largest micro-batch
  models::BatchShape evaluation;   // the largest batch of an evaluation; empty: there is none
  int64_t evaluation_rows = 0;     // of which an evaluation keeps a classifier's logits
  int64_t outputs_of_row = 0;
  int num_ranks = 1;
  RankPlacement placement = RankPlacement::kThreads;
  bool shares_memory = false;  // of processes: they are on one host and have memory in common, as threads do
  models::PlannedDevice device = models::PlannedDevice::kProcessor;

  bool is_on_gpu() const { return device == models::PlannedDevice::kGpu; }
};

// The most that tensors will hold while weights are loaded, steps are taken, a model is evaluated and checkpoints are
// written.
struct MemoryPlan {
  models::MemoryByUse rank{};  // at its highest moment; of the rank with most; of ranks on GPUs, of the GPU's memory
  models::MemoryByUse host{};  // of ranks on GPUs, what the rank with most of it has in the host's memory
  int64_t shared_bytes = 0;    // part of rank[kParameters] that all threads have together; a process counts its part
  int64_t process_bytes = 0;   // of all ranks of a process, highest moments at the same time; on GPUs, of host
  int64_t disk_bytes = 0;      // of the rank's scratch files
  std::vector<int64_t> copied_bytes = {};  // by rank: what --async_save copies

  int64_t rank_bytes() const { return models::total(rank); }
};

// Goes through a run as Stepper, ShardedParameters and GradientReducer do, block by block, and adds up what would be
// allocated. Communication is taken to be one block behind the backward pass. Error as ShardedParameters for hybrid
// sharding with groups that do not fit.
MemoryPlan plan_memory(const MemoryPlanRequest& request);

// Of a lone rank with the model in its memory that evaluates batches like `evaluation` and does nothing else, in bytes.
struct EvaluationMemory {
  int64_t weights = 0;
  int64_t activations = 0;
};
EvaluationMemory plan_evaluation_memory(const MemoryPlanRequest& request);

// Where a rank of such a run keeps the units of its model.
std::vector<UnitPlacement> place_units(const MemoryPlanRequest& request, const Units& units, int rank);

}  // namespace strake::training
