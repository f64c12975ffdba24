#pragma once

#include <string>

#include "strake/models/block.h"
#include "strake/models/encoder/config.h"

namespace strake::models {

// The head of token classification and of extractive question answering: [T, hidden_size] -> logits [T, outputs].
class TokenHeadBlock final : public Block {
 public:
  // `checkpoint_name`: of the layer, without .weight.
  TokenHeadBlock(const EncoderConfig& config, const std::string& checkpoint_name, int64_t outputs,
                 uint32_t dropout_site);

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;

 private:
  double dropout_;
  uint32_t dropout_site_;
  size_t weight_, bias_;
};

}  // namespace strake::models
