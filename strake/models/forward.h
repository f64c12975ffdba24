#pragma once

#include <functional>

#include "strake/models/model.h"

namespace strake::models {

// Parameters of block i for a forward pass.
using ParameterSource = std::function<Parameters(size_t)>;

// Forward pass through all blocks without a graph: logits [S, num_labels] in the parameters' dtype.
at::Tensor forward_logits(const SequenceClassifier& model, const ParameterSource& parameters,
                          const tensors::PackedBatch& batch);

}  // namespace strake::models
