#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "strake/comm/comm.h"
#include "strake/comm/comm_queue.h"
#include "strake/models/model.h"
#include "strake/training/sharded_parameters.h"

namespace strake::training {

// Adds up the gradients of a step's micro-batches, in the order of their global number m = k * W + r (micro-step k,
// rank r of W): gradient = ((g_0 + g_1) + g_2) + ... element by element, so that the sum has the same bits for every W.
// With several ranks the sum of a block is taken by the communication thread while earlier blocks are still running
// backward; a lone rank writes straight into the sum, if no other block's gradient is added to the block's own (tied
// weights): the gradient of a micro-batch must be complete before it is added to the sum. With a reduction type of 16
// bits every micro-batch's gradient is rounded to it first, also on a lone rank, and that is what ranks exchange.
class GradientReducer {
 public:
  GradientReducer(const models::Model& model, ShardedParameters& parameters, comm::Comm& comm,
                  Precision reduction = Precision::kFp32);
  ~GradientReducer();

  // Starts micro-step k of a step, in which ranks below `contributors` have a micro-batch.
  void begin_micro_step(int64_t k, int contributors);
  // Where gradients of block i's trained parameters go, between begin(i) and reduce(i).
  models::GradientSink& sink(size_t i);
  // Before block i's backward pass: opens its sink, and those of the blocks whose parameters it uses.
  void begin(size_t i);
  // After block i's backward pass, or in place of it on a rank without a micro-batch. Nothing for a block of which
  // nothing is trained. kInternal if a trained parameter got none.
  void reduce(size_t i);
  // Returns when all gradients are summed up.
  void finish();
  // Frees the memory that is kept for the next gradients. After finish().
  void release_buffers();

 private:
  class BlockSink;
  struct Buffer {
    at::Tensor values;
    tensors::TouchedChunks touched;
  };

  void open(size_t i);
  // A lone rank's gradients of block i go straight into the sum.
  bool writes_into_sum(size_t i) const;
  // What is exchanged of block i's complete gradient.
  Buffer to_reduce(size_t i);
  at::TensorOptions on_device(at::ScalarType dtype) const;
  Buffer take_buffer(int64_t numel, at::ScalarType dtype);
  void return_buffer(Buffer buffer);

  const models::Model& model_;
  ShardedParameters& parameters_;
  comm::Comm& comm_;
  comm::CommQueue* queue_;  // none for a lone rank, unless it reads parameters from disk: one thread alone uses comm_
  at::ScalarType reduction_;
  std::vector<std::unique_ptr<BlockSink>> sinks_;
  std::vector<tensors::TouchedChunks> touched_of_sums_;  // by block: of the sum, where a lone rank writes into it
  bool first_micro_step_ = true;
  int contributors_ = 1;
  std::optional<uint64_t> on_the_way_;  // the last reduction that was posted
  std::mutex mutex_;
  std::vector<Buffer> free_buffers_;
};

}  // namespace strake::training
