#include "strake/training/planned_parameters.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "strake/training/offloaded_states.h"
#include "strake/training/replica_copies.h"

namespace strake::training {

using models::MemoryMeter;
using models::MemoryUse;

namespace {

// What libtorch's allocator of page-locked memory takes for so many: the next power of two.
int64_t page_locked_bytes(int64_t bytes) {
  return bytes == 0 ? 0 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
}

}  // namespace

int64_t state_bytes(const TrainingOptions& options) {
  const optim::Optimizer optimizer(options.optimizer_settings());
  return static_cast<int64_t>(optimizer.states().size()) * element_size(options.state_precision());
}

PlannedParameters::PlannedParameters(const MemoryPlanRequest& request, const Units& units, int rank,
                                     const PlannedMeters& meters)
    : model_(request.model),
      units_(units),
      meters_(meters),
      element_size_(element_size(request.options.precision())),
      is_hybrid_(request.options.sharding.stage.parameters == Kept::kGroupShard),
      placements_(place_units(request, units, rank)),
      uses_(request.model, units),
      buffers_(meters.device, MemoryUse::kGatherBuffers) {
  keep(request);
  keep_windows(request.options);
  load();
}

void PlannedParameters::prefetch(size_t i) {
  uses_.prefetch(i, [this](size_t u) {
    if (!placements_[u].is_kept_whole) buffers_.take(bytes(u));
  });
}

void PlannedParameters::release(size_t i) {
  uses_.release(i, [this](size_t u) {
    if (!placements_[u].is_kept_whole) buffers_.put_back(bytes(u));
  });
}

// Blocks are written one at a time, and their weights are complete on every rank then. Optimizer states, of which a
// rank writes its own, take no more than that.
void PlannedParameters::save(const MemoryPlanRequest& request) {
  buffers_.clear();
  MemoryMeter& meter = meters_.host;
  const auto copied = [&](size_t u) {
    if (request.is_on_gpu()) return units_[u].layout.numel() * element_size(Precision::kFp32);
    const bool are_parameters = placements_[u].is_shared && !request.options.has_master_copies();
    const bool is_own = (placements_[u].owns_whole || request.num_ranks == 1) && !placements_[u].is_on_disk;
    return (are_parameters || is_own) && request.options.master == Precision::kFp32
               ? 0
               : units_[u].layout.numel() * element_size(Precision::kFp32);
  };
  for (size_t i = 0; i < model_.blocks().size(); ++i) {
    const std::span<const size_t> units = units_.of_block(i);
    const auto whole =
        meter.lend(MemoryUse::kGatherBuffers,
                   units.size() > 1 ? model_.blocks()[i]->layout().numel() * element_size(Precision::kFp32) : 0);
    for (const size_t u : units) meter.lend(MemoryUse::kGatherBuffers, copied(u));
  }
}

int64_t PlannedParameters::disk_bytes(const TrainingOptions& options) const {
  const OffloadOptions& offload = options.sharding.offload;
  if (!offload.optimizer) return 0;
  std::vector<at::ScalarType> arrays;
  for (const Precision weights : options.weights_on_disk()) arrays.push_back(scalar_type(weights));
  std::array<std::vector<int64_t>, 2> counts;
  for (const UnitPlacement& unit : placements_) {
    if (unit.is_on_disk) counts[unit.is_frozen ? 1 : 0].push_back(unit.count);
  }
  uint64_t bytes = OffloadedStates::disk_bytes(counts[1], arrays, offload.window_elements);
  arrays.insert(arrays.end(), optim::Optimizer(options.optimizer_settings()).states().size(),
                scalar_type(options.state_precision()));
  bytes += OffloadedStates::disk_bytes(counts[0], arrays, offload.window_elements);
  if (is_hybrid_ && offload.parameters) {
    bytes += ReplicaCopies::disk_bytes(placements_, scalar_type(options.precision()));
  }
  return static_cast<int64_t>(bytes);
}

void PlannedParameters::keep(const MemoryPlanRequest& request) {
  const TrainingOptions& options = request.options;
  const bool is_threads = request.placement == RankPlacement::kThreads;
  const bool is_pinned = request.is_on_gpu() && options.sharding.offload.pins_parameters;
  const int64_t master_size = element_size(options.master);
  for (const UnitPlacement& unit : placements_) {
    int64_t kept = unit.keeps_parameters ? unit.kept_count * element_size_ : 0;
    if (unit.is_shared && !is_threads) kept = (kept + request.num_ranks - 1) / request.num_ranks;
    if (unit.is_kept_on_host && is_pinned) kept = page_locked_bytes(kept);
    (unit.is_kept_on_host ? meters_.host : meters_.device).take(MemoryUse::kParameters, kept);
    if (unit.is_shared && is_threads) shared_bytes_ += kept;
    const int64_t in_memory = unit.is_on_disk ? 0 : unit.count;
    MemoryMeter& with_states = unit.has_states_on_host ? meters_.host : meters_.device;
    if (options.has_master_copies()) with_states.take(MemoryUse::kMasterWeights, in_memory * master_size);
    if (unit.is_frozen) continue;
    meters_.device.take(MemoryUse::kGradients, unit.count * element_size(options.accumulation));
    with_states.take(MemoryUse::kOptimizer, in_memory * state_bytes(options));
  }
}

// Of what is on disk: see ShardedParameters::open_disk and open_disk_of_frozen.
void PlannedParameters::keep_windows(const TrainingOptions& options) {
  MemoryMeter& meter = meters_.host;
  const OffloadOptions& offload = options.sharding.offload;
  if (!offload.optimizer) return;
  int64_t weights_size = 0;
  for (const Precision weights : options.weights_on_disk()) weights_size += element_size(weights);
  meter.take(MemoryUse::kOptimizer, elements_in_windows(offload, models::Trained::kYes, offload.buffers) *
                                        (state_bytes(options) + weights_size));
  meter.take(MemoryUse::kMasterWeights,
             elements_in_windows(offload, models::Trained::kNo, OffloadOptions::kBuffersOfFrozen) * weights_size);
}

int64_t PlannedParameters::elements_in_windows(const OffloadOptions& offload, models::Trained trained,
                                               int buffers) const {
  int64_t windows = 0;
  int64_t largest = 0;
  for (size_t u = 0; u < placements_.size(); ++u) {
    if (!placements_[u].is_on_disk || units_[u].trained != trained) continue;
    windows += (placements_[u].count + offload.window_elements - 1) / offload.window_elements;
    largest = std::max(largest, std::min(offload.window_elements, placements_[u].count));
  }
  return std::min<int64_t>(windows, buffers) * largest;
}

// Weights are loaded a whole block at a time, and copied into its units if there are two. Copies of other ranks'
// parameters go to disk through gather buffers.
void PlannedParameters::load() {
  for (size_t i = 0; i < model_.blocks().size(); ++i) {
    int64_t elements = model_.blocks()[i]->layout().numel();
    int64_t largest = 0;
    for (const size_t u : units_.of_block(i)) largest = std::max(largest, units_[u].layout.numel());
    if (units_.of_block(i).size() > 1) elements += largest;
    for (const size_t u : units_.of_block(i)) {
      const bool goes_through_buffer = is_hybrid_ && !placements_[u].keeps_parameters;
      if (goes_through_buffer) buffers_.take(bytes(u));
      meters_.host.lend(MemoryUse::kGatherBuffers, elements * element_size(Precision::kFp32));
      if (goes_through_buffer) buffers_.put_back(bytes(u));
    }
  }
}

}  // namespace strake::training
