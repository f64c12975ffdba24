#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "strake/models/memory_meter.h"
#include "strake/models/planned_graph.h"
#include "strake/training/memory_plan.h"
#include "strake/training/planned_buffers.h"
#include "strake/training/planned_parameters.h"

namespace strake::training {

// What a plan of memory counts of GradientReducer: where gradients of a micro-batch are collected. Everything it is
// made of outlives it.
class PlannedReducer {
 public:
  PlannedReducer(const MemoryPlanRequest& request, const Units& units, models::MemoryMeter& meter);

  void begin(size_t i, models::PlannedFold fold);
  void reduce(size_t i, const PlannedParameters& parameters);
  void finish() { arrive(); }
  void release_buffers() { buffers_.clear(); }

 private:
  int64_t exchanged_size() const { return element_size(request_.options.reduction); }
  bool rounds() const { return request_.options.reduction != Precision::kFp32; }
  // Null: nothing in the block is trained. The trained unit of a block is its first.
  const Unit* trained_unit(size_t i) const;
  void open(size_t i, models::PlannedFold fold);
  void arrive();

  const MemoryPlanRequest& request_;
  const Units& units_;
  models::MemoryMeter& meter_;
  std::vector<char> is_tied_;
  std::vector<std::optional<int64_t>> open_;  // bytes of the buffer that is being filled; 0: straight into the sum
  int64_t on_the_way_ = 0;
  std::shared_ptr<const void> staging_;  // of what is on the way
  PlannedBuffers buffers_;
};

}  // namespace strake::training
