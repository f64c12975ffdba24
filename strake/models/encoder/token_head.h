#pragma once

#include <string>

#include "strake/models/block.h"
#include "strake/models/encoder/config.h"

namespace strake::models {

// The head of token classification and of extractive question answering: [T, hidden_size] -> logits [T, outputs].
class TokenHeadBlock : public Block {
 public:
  struct Dropout {
    uint32_t site = 0;
    double probability = 0;
  };
  // `checkpoint_name`: of the layer, without .weight.
  TokenHeadBlock(const EncoderConfig& config, const std::string& checkpoint_name, int64_t outputs,
                 const Dropout& dropout);

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;

 private:
  Dropout dropout_;
  size_t weight_, bias_;
};

}  // namespace strake::models
