#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strake/models/block.h"

namespace strake::models {

// A model with the head of one task, as a list of blocks. The engine runs the blocks; what the last one returns goes to
// loss().
class Model {
 public:
  Model() = default;
  Model(Model&&) = default;
  Model& operator=(Model&&) = default;
  virtual ~Model() = default;

  std::span<const std::unique_ptr<Block>> blocks() const { return blocks_; }
  // Numbers in all parameters, and in those that are trained; a tied parameter counts once.
  int64_t num_parameters() const;
  int64_t num_trained_parameters() const;

  // Takes a parameter out of training, wherever it is used. Before training state is made for the model.
  void freeze(size_t block, size_t parameter);
  // The first block with a trained parameter, the last one that a backward pass reaches; blocks().size() if there is
  // none.
  size_t first_trained_block() const;

  // Loss of the last block's output summed over its targets and divided by `divisor`, the number of targets of the
  // whole optimizer step. A scalar with a graph.
  virtual at::Tensor loss(const at::Tensor& output, const at::Tensor& labels, double divisor) const = 0;
  // What the blocks get of a batch on the host. `key`, of (seed, optimizer step), is absent in evaluation.
  virtual tensors::PackedBatch prepared(tensors::PackedBatch batch, const std::optional<PhiloxKey>& /*key*/) const {
    return batch;
  }
  // Targets of a sequence of `length` tokens.
  virtual int64_t num_targets(int64_t length) const = 0;
  // Standard deviation of new weights.
  virtual double initializer_range() const = 0;
  // Base checkpoints leave this out of tensor names, "bert." for example.
  virtual std::string checkpoint_prefix() const = 0;
  // True for tensors of old checkpoints that are no weights, such as stored masks.
  virtual bool is_buffer(std::string_view /*checkpoint_name*/) const { return false; }

 protected:
  void add(std::unique_ptr<Block> block) { blocks_.push_back(std::move(block)); }

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace strake::models
