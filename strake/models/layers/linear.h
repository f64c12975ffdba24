#pragma once

#include "strake/kernels/bias_activation.h"
#include "strake/models/block.h"

namespace strake::models::layers {

// x[N, I] weight[O, I]^T + bias[O]
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias);

// activation(linear(x, weight, bias)); bias and activation in one pass over the product.
at::Tensor linear_activation(const at::Tensor& x, const Parameter& weight, const Parameter& bias,
                             kernels::Activation activation);

// Their plans; `outputs` is O.
PlannedTensor linear(PlannedGraph& graph, const PlannedTensor& x, int64_t outputs, const TrainedAffine& trained);
PlannedTensor linear_activation(PlannedGraph& graph, const PlannedTensor& x, int64_t outputs,
                                const TrainedAffine& trained);

}  // namespace strake::models::layers
