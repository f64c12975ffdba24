#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "strake/models/block.h"

namespace strake::training {

// Block-local autograd: each block's forward pass is a graph of its own, from a detached copy of its input to its
// output. Between blocks there are only tensors, so the engine is free to gather, release, reduce or recompute in
// between.
class Tape {
 public:
  at::Tensor forward(const models::Block& block, const models::Parameters& parameters, const at::Tensor& input,
                     const models::StepContext& context);

  // Runs the graph of the last block that has not run backward yet; gradients of parameters go to their sinks. Returns
  // the gradient of the block's input, undefined for the first block.
  at::Tensor backward(const at::Tensor& output_gradient);

 private:
  struct Record {
    at::Tensor input;
    at::Tensor output;
  };
  std::vector<Record> records_;
};

}  // namespace strake::training
