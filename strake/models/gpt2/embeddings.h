#pragma once

#include "strake/models/block.h"
#include "strake/models/gpt2/config.h"

namespace strake::models {

// Word + position embeddings, dropout: [T] -> [T, hidden_size].
class Gpt2EmbeddingsBlock final : public Block {
 public:
  static constexpr size_t kWord = 0;  // in parameters(): what a tied head uses too

  Gpt2EmbeddingsBlock(const Gpt2Config& config, uint32_t first_site);

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;

 private:
  double dropout_;
  uint32_t site_;
  size_t word_, position_;
};

}  // namespace strake::models
