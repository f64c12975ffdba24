#pragma once

#include "strake/models/block.h"

namespace strake::models::layers {

// Of every token but the first of each sequence: its negative log-likelihood given the tokens before it, fp32 [T - S],
// in the order of the batch. Logits are hidden[T, H] weight[V, H]^T of the token before; they are there for some tokens
// at a time only, so their gradient is taken at once (as in Liger Kernel, Hsu et al., arXiv:2410.10989), for an output
// gradient that is 1 / context.loss_divisor for every token: kInternal if another one arrives. `smoothing` of labels as
// kernels::cross_entropy has it.
at::Tensor token_nll(const at::Tensor& hidden, const Parameter& weight, const StepContext& context,
                     float smoothing = 0);

// What gives logits of the vocabulary.
struct VocabularyProjection {
  Parameter weight;  // [V, H]
  Parameter bias;    // [V]
  float smoothing = 0;
};
// The same of the rows of states[N, H], whose targets are int32 [N] in memory of the host; logits have a bias.
at::Tensor target_nll(const at::Tensor& states, const at::Tensor& targets, const VocabularyProjection& projection,
                      const StepContext& context);

// Their plans; `classes` is V.
PlannedTensor token_nll(PlannedGraph& graph, const PlannedTensor& hidden, int64_t classes, Trained weight);
PlannedTensor target_nll(PlannedGraph& graph, const PlannedTensor& states, int64_t classes,
                         const TrainedAffine& projection);

}  // namespace strake::models::layers
