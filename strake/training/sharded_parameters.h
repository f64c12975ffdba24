#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "strake/comm/comm.h"
#include "strake/kernels/adamw.h"
#include "strake/models/model.h"
#include "strake/training/options.h"

namespace strake::training {

// Everything a rank keeps of one block. Today's layout: parameters whole on every rank; gradient, master weights and
// optimizer state only of the rank's own shard (ZeRO stage 2 with a replica of the parameters).
struct BlockShard {
  explicit BlockShard(tensors::ShardLayout shard_layout) : layout(shard_layout) {}

  tensors::ShardLayout layout;
  at::Tensor whole;                                // [numel] in the compute dtype
  at::Tensor master;                               // fp32 shard; a window of `whole` when that is fp32
  at::Tensor gradient;                             // fp32 shard: the sum of this step's micro-batches
  at::Tensor exp_avg;                              // fp32 shard
  at::Tensor exp_avg_sq;                           // fp32 shard
  std::vector<kernels::WeightDecaySegment> decay;  // elements of the shard
};

// The parameters of a model with their training state, cut into one shard per rank.
class ShardedParameters {
 public:
  ShardedParameters(const models::SequenceClassifier& model, comm::Comm& comm, const TrainingOptions& options);

  size_t num_blocks() const { return blocks_.size(); }
  BlockShard& block(size_t i) { return blocks_[i]; }
  int rank() const { return comm_.rank(); }

  // Sets a block's parameters from a whole fp32 buffer.
  void assign(size_t i, const at::Tensor& whole_fp32);

  // The block's parameters for a pass. Gradients go to `sink`; null in evaluation.
  models::Parameters gather(size_t i, models::GradientSink* sink) const;
  void release(size_t) const {}  // parameters stay whole

  // Norm of the summed gradient over all blocks and ranks; the same bits on any number of ranks.
  double gradient_norm();

  struct Update {
    double learning_rate;
    int64_t step;  // 1 for the first
    double gradient_scale;
  };
  // One AdamW step of every shard; afterwards all ranks have the new parameters.
  void update(const Update& update);

  // Collective: the whole buffer of a shard-sized fp32 tensor, complete on every rank.
  at::Tensor gather_whole(size_t i, const at::Tensor& shard);
  // The rank's own part of a whole buffer.
  at::Tensor shard_of(size_t i, const at::Tensor& whole) const;

 private:
  const models::SequenceClassifier& model_;
  comm::Comm& comm_;
  TrainingOptions options_;
  std::vector<BlockShard> blocks_;
};

}  // namespace strake::training
