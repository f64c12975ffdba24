#pragma once

#include "strake/models/block.h"

namespace strake::models::layers {

struct LayerNormParameters {
  Parameter weight;
  Parameter bias;
  double eps;
};

// layer_norm(dropout(x) + residual), one pass. [T, H].
at::Tensor residual_layer_norm(const at::Tensor& x, const at::Tensor& residual, const LayerNormParameters& norm,
                               const kernels::Dropout& dropout, const StepContext& context);

struct NormedSum {
  at::Tensor sum;   // dropout(x) + residual
  at::Tensor norm;  // layer_norm(sum)
};

// residual_layer_norm for pre-norm networks, which go on with the sum as well. Both must be used.
NormedSum residual_sum_and_norm(const at::Tensor& x, const at::Tensor& residual, const LayerNormParameters& norm,
                                const kernels::Dropout& dropout, const StepContext& context);

// layer_norm(x)
at::Tensor layer_norm(const at::Tensor& x, const LayerNormParameters& norm, const StepContext& context);

// Their plans; `dropout` is the probability.
struct PlannedNormedSum {
  PlannedTensor sum;
  PlannedTensor norm;
};
PlannedTensor residual_layer_norm(PlannedGraph& graph, const PlannedTensor& x, const PlannedTensor& residual,
                                  double dropout, const TrainedAffine& trained);
PlannedNormedSum residual_sum_and_norm(PlannedGraph& graph, const PlannedTensor& x, const PlannedTensor& residual,
                                       double dropout, const TrainedAffine& trained);
PlannedTensor layer_norm(PlannedGraph& graph, const PlannedTensor& x, const TrainedAffine& trained);

}  // namespace strake::models::layers
