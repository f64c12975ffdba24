#pragma once

#include <cstdint>
#include <vector>

#include "strake/models/memory_meter.h"
#include "strake/training/memory_plan.h"
#include "strake/training/planned_buffers.h"
#include "strake/training/unit_uses.h"

namespace strake::training {

// Of where tensors are computed with and of the host: one and the same meter if that is the processor.
struct PlannedMeters {
  models::MemoryMeter& device;
  models::MemoryMeter& host;
};

// Of the optimizer's state of a parameter.
int64_t state_bytes(const TrainingOptions& options);

// What a plan of memory counts of ShardedParameters: what a rank keeps, and what it gathers for passes. The constructor
// goes through loading the weights. Of the request it keeps the model.
class PlannedParameters {
 public:
  PlannedParameters(const MemoryPlanRequest& request, const Units& units, int rank, const PlannedMeters& meters);

  void prefetch(size_t i);
  void release(size_t i);
  // Writing a checkpoint.
  void save(const MemoryPlanRequest& request);

  // Of what is kept, the part that all ranks of a process have together.
  int64_t shared_bytes() const { return shared_bytes_; }
  // Of the rank's scratch files: see ShardedParameters::open_disk.
  int64_t disk_bytes(const TrainingOptions& options) const;
  const UnitPlacement& unit(size_t u) const { return placements_[u]; }

 private:
  void keep(const MemoryPlanRequest& request);
  void keep_windows(const TrainingOptions& options);
  int64_t elements_in_windows(const OffloadOptions& offload, models::Trained trained, int buffers) const;
  void load();
  int64_t bytes(size_t u) const { return units_[u].layout.numel() * element_size_; }

  const models::Model& model_;
  const Units& units_;
  PlannedMeters meters_;
  int64_t element_size_;
  bool is_hybrid_;
  int64_t shared_bytes_ = 0;
  std::vector<UnitPlacement> placements_;
  UnitUses uses_;
  PlannedBuffers buffers_;
};

}  // namespace strake::training
