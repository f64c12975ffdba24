#pragma once

#include "strake/models/model.h"

namespace strake::models {

// Where a forward pass gets the parameters of one block after the other.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  // Valid until release(i). Without gradient sinks.
  virtual Parameters acquire(size_t i) = 0;
  virtual void release(size_t) {}
};

// Forward pass through all blocks without a graph, in evaluation mode: the last block's output.
at::Tensor forward(const Model& model, ParameterSource& parameters, const tensors::PackedBatch& batch);

}  // namespace strake::models
