#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "strake/comm/comm.h"
#include "strake/comm/comm_queue.h"
#include "strake/kernels/packed_weights.h"
#include "strake/models/model.h"
#include "strake/optim/optimizer.h"
#include "strake/training/gather_buffers.h"
#include "strake/training/offloaded_states.h"
#include "strake/training/options.h"
#include "strake/training/placement.h"
#include "strake/training/replica_copies.h"
#include "strake/training/unit_uses.h"
#include "strake/training/updated_window.h"

namespace strake::training {

// Elements [begin, begin + size) of a flat tensor.
inline at::Tensor window(const at::Tensor& flat, int64_t begin, int64_t size) { return flat.narrow(0, begin, size); }

// Everything a rank keeps of one unit. What is on disk instead of in memory is undefined here, and what a frozen unit
// has not.
struct UnitShard : UnitPlacement {
  explicit UnitShard(UnitPlacement placement) : UnitPlacement(std::move(placement)) {}

  at::Tensor whole;  // [numel], compute dtype; without memory unless kept or gathered
  at::Tensor kept;   // what stays between passes, a window of `whole` if that is kept
  at::Tensor pages;  // on GPUs, for what is on disk between passes: host memory on its way, while it is copied
  // TrainingOptions::master, own part; a window of `kept` if and only if that has the same type. Of a frozen unit: the
  // values that were loaded, so that they are written to checkpoints as they were.
  at::Tensor master;
  at::Tensor gradient;                          // own part, TrainingOptions::accumulation: the sum of micro-batches
  std::vector<at::Tensor> states;               // own part, in the order of Optimizer::states
  std::vector<kernels::TensorSegment> tensors;  // of the whole unit
  uint64_t ticket = 0;                          // of the gather in the communication queue
};

// The parameters of a model with their training state, spread over the ranks as a ShardingStage says. Frozen ones are
// gathered as the others are and have nothing else: no gradient, no optimizer state, no part in norm or update.
class ShardedParameters {
 public:
  // Collective.
  ShardedParameters(const models::Model& model, comm::Comm& comm, const TrainingOptions& options);
  ~ShardedParameters();

  size_t num_blocks() const { return uses_.num_blocks(); }
  const Units& units() const { return units_; }
  UnitShard& unit(size_t u) { return shards_[u]; }
  int rank() const { return comm_.rank(); }
  int num_ranks() const { return comm_.size(); }
  const ShardingStage& stage() const { return stage_; }
  // Where everything is that a rank keeps.
  at::Device device() const { return device_; }
  const optim::Optimizer& optimizer() const { return optimizer_; }
  at::ScalarType state_type() const { return scalar_type(options_.state_precision()); }
  // The rank's communication thread; none for a lone rank with its parameters in memory.
  comm::CommQueue* queue() { return queue_.get(); }
  // Where this rank's piece of the step's gradient is summed up: within UnitShard::gradient.
  at::Tensor gradient_piece(size_t u) const;

  // Sets a block's parameters from a whole fp32 buffer in the block's layout. Collective.
  void assign(size_t i, const at::Tensor& whole_fp32);
  // The master weights of a block in its layout, in fp32, complete on every rank, to be read only: they may be those
  // that are trained, of a lone rank or in memory that ranks have in common. Collective.
  at::Tensor whole_weights(size_t i);

  // Where the gradients of a block's trained parameters go.
  using Sinks = std::function<models::GradientSink*(size_t block)>;
  // Starts to bring the parameters that block i needs, if they are not here or on their way. Any i >= num_blocks() is
  // nothing. Collective, as are all calls that may gather.
  void prefetch(size_t i);
  // The parameters for a pass of block i, valid until release(i). Without `sinks` no gradients are taken.
  models::Parameters gather(size_t i, const Sinks& sinks = nullptr);
  void release(size_t i);

  // Norm of the summed gradient over all units and ranks; the same bits on any number of ranks.
  double gradient_norm();

  struct Update {
    double learning_rate;
    int64_t step;  // 1 for the first
    double gradient_scale;
    std::optional<optim::Betas> betas = std::nullopt;  // instead of the optimizer's
  };
  // One step of every rank's own part; afterwards all ranks have or can gather the new parameters.
  void update(const Update& update);

  // Of a trained unit: the own part's k-th optimizer state, wherever it is kept, on the host.
  at::Tensor state(size_t u, size_t k);
  void set_state(size_t u, size_t k, const at::Tensor& own);
  // Collective: the whole buffer of a tensor that has the rank's own part, in fp32, complete on every rank, on the
  // host. To be read only, as whole_weights.
  at::Tensor gather_whole(size_t u, const at::Tensor& own);
  // The rank's own part of a whole buffer.
  at::Tensor own_part(size_t u, const at::Tensor& whole) const;
  // Frees the memory that is kept for the next gathered blocks.
  void release_buffers() { buffers_.clear(); }

 private:
  void add_unit(const Unit& unit, UnitPlacement placement);
  void open_disk();
  void open_disk_of_frozen(std::vector<at::ScalarType> arrays);
  OffloadedStates::Options disk_options(int buffers) const;
  OffloadedStates& disk_of(const UnitShard& unit) { return unit.is_frozen ? *frozen_disk_ : *disk_; }
  void assign_unit(size_t u, const at::Tensor& whole_fp32);
  at::Tensor whole_weights_of_unit(size_t u);
  at::TensorOptions kept_type(const UnitShard& unit) const;
  // What is done with windows: an update, or what comes before it and writes states only.
  enum class WindowUse { kUpdate, kPrepare };
  using UseWindow = std::function<void(const UpdatedWindow&, size_t u)>;
  // Calls use(window, unit) for what the rank updates, brought to where it is updated: for what is on disk, several at
  // once, and for what unit u has in memory.
  void for_each_disk_window(WindowUse how, const UseWindow& use);
  void for_each_window(size_t u, WindowUse how, const UseWindow& use);
  template <typename Use>
  void use_on_host(const UpdatedWindow& updated, WindowUse how, const Use& use) const;
  template <typename Use>
  void for_each_host_window(const UnitShard& unit, const Use& use) const;
  UpdatedWindow disk_window(const OffloadedStates::Window& place, std::span<void* const> arrays) const;
  void bring(size_t u);
  void drop(size_t u);
  // Where what the rank keeps of a unit is gathered, as memory of the host: on a GPU, pages that are copied to there.
  enum class DiskTransfer { kRead, kWrite };
  template <typename Use>
  void with_pages(size_t u, DiskTransfer transfer, const Use& use);
  void read_own(size_t u, const at::Tensor& kept);
  void complete(size_t u);
  void complete_replica(size_t u);
  // By unit and tensor; for optimizers that need them, whose state is then that of the step.
  std::vector<std::vector<double>> trust_ratios(const kernels::UpdateStep& step,
                                                const std::optional<optim::Betas>& betas);
  models::Parameter view(size_t block, size_t parameter, const Sinks& sinks) const;

  const models::Model& model_;
  comm::Comm& comm_;
  TrainingOptions options_;
  ShardingStage stage_;
  at::Device device_;
  Units units_;
  optim::Optimizer optimizer_;
  std::unique_ptr<comm::CommQueue> queue_;
  std::unique_ptr<comm::Comm> group_;             // hybrid: the ranks among which parameters are spread
  std::unique_ptr<comm::Comm> replicas_;          // hybrid: the ranks with the same piece in their groups
  std::vector<UnitShard> shards_;                 // by unit
  std::unique_ptr<OffloadedStates> disk_;         // of trained units
  std::unique_ptr<OffloadedStates> frozen_disk_;  // of frozen ones, which have the first arrays only
  std::unique_ptr<ReplicaCopies> copies_;         // hybrid with parameters on disk
  std::optional<int> master_on_disk_;             // number of the array in both
  std::optional<int> rounded_on_disk_;            // parameters of 16 bits that are not their own master weights
  int states_on_disk_ = 0;                        // number of the first state's array
  std::shared_ptr<kernels::PackedWeights> packed_weights_;  // of all ranks, where these are threads of one process
  uint64_t version_ = 0;                                    // of all parameters: steps and assignments
  UnitUses uses_;                                           // whose parameters are here or on their way for a pass
  GatherBuffers buffers_;
  GatherBuffers pages_;  // GPU: by way of which parameters come from disk and copies go there
};

}  // namespace strake::training
