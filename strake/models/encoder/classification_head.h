#pragma once

#include "strake/models/block.h"
#include "strake/models/encoder/config.h"

namespace strake::models {

// The head all three families share but for names, order of dropout and activation: dense -> activation -> classifier.
// First token of each sequence [S, hidden_size] -> logits [S, num_labels].
class ClassificationHeadBlock final : public Block {
 public:
  struct Design {
    const char* dense;  // in the checkpoint, without .weight
    const char* classifier;
    kernels::Activation activation;
    bool dropout_before_dense;  // one more dropout, as RoBERTa has
  };

  ClassificationHeadBlock(const EncoderConfig& config, const Design& design, uint32_t first_site);

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;
  kernels::Activation activation() const { return design_.activation; }

 private:
  Design design_;
  double dropout_;
  uint32_t first_site_;
  size_t dense_weight_, dense_bias_, classifier_weight_, classifier_bias_;
};

}  // namespace strake::models
