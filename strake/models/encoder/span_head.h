#pragma once

#include "strake/models/encoder/token_head.h"

namespace strake::models {

// The head of extractive question answering in training: [T, hidden_size] -> fp32 [T, 2], the logarithm of each token's
// probability to be the first, and the last, one of the answer in its sequence. What a GPU's batch is filled up with
// has logits.
class SpanHeadBlock final : public TokenHeadBlock {
 public:
  SpanHeadBlock(const EncoderConfig& config, uint32_t dropout_site);

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;
};

}  // namespace strake::models
