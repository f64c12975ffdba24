#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "strake/models/block.h"

namespace strake::training {

// What a forward pass leaves for the backward pass of a block.
enum class Keep {
  kGraph,        // everything its layers saved
  kInput,        // only its input: the backward pass computes the block again (Chen et al., arXiv:1604.06174)
  kInputOnHost,  // the same, in the host's memory until then
  kNothing       // the block has no backward pass: nothing in it or before it is trained
};

// Block-local autograd: each block's forward pass is a graph of its own, from a detached copy of its input to its
// output. Between blocks there are only tensors, so the engine is free to gather, release, reduce or recompute in
// between. Dropout is a function of counters, so a block computed again gives the same bits.
//
// The first block that is kept needs no gradient of its input: there is nothing to be trained before it.
class Tape {
 public:
  at::Tensor forward(const models::Block& block, const models::Parameters& parameters, const at::Tensor& input,
                     const models::StepContext& context, Keep keep);

  // Backward pass of the last block that has had none yet, with the same parameters; their gradients go to their sinks.
  // Returns the gradient of the block's input, undefined for the first block that was kept.
  at::Tensor backward(const models::Block& block, const models::Parameters& parameters,
                      const at::Tensor& output_gradient, const models::StepContext& context);

 private:
  struct Record {
    at::Tensor input;   // undefined for the first block of a model
    at::Tensor output;  // undefined if it is to be computed again
  };
  std::vector<Record> records_;
};

}  // namespace strake::training
