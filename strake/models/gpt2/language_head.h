#pragma once

#include "strake/models/block.h"
#include "strake/models/gpt2/config.h"

namespace strake::models {

// Layer norm, output projection and cross entropy: [T, hidden_size] -> the negative log-likelihood of each token but
// the first of its sequence, fp32 [T - S]. Logits of all tokens are never there at once.
class Gpt2LanguageHeadBlock final : public Block {
 public:
  Gpt2LanguageHeadBlock(const Gpt2Config& config, double label_smoothing);

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;

 private:
  int64_t vocab_size_;
  double layer_norm_eps_;
  float label_smoothing_;
  Affine norm_;
  size_t projection_;
};

}  // namespace strake::models
