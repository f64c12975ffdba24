#pragma once

#include "strake/models/block.h"

namespace strake::models::layers {

// Dropout of hidden states [T, H]; x itself when it is off.
at::Tensor dropout(const at::Tensor& x, const kernels::Dropout& dropout, const StepContext& context);

// The same for one vector per sequence, [S, H]: keyed by the sequence's row at position 0.
at::Tensor dropout_of_sequences(const at::Tensor& x, const kernels::Dropout& dropout, const StepContext& context);

// The plan of either; `p` is the probability.
PlannedTensor dropout(PlannedGraph& graph, const PlannedTensor& x, double p);

}  // namespace strake::models::layers
