#pragma once

#include "strake/models/block.h"
#include "strake/models/encoder/family.h"

namespace strake::models {

// Word + position (+ token type) embeddings, layer norm, dropout: [T] -> [T, hidden_size].
class EmbeddingsBlock final : public Block {
 public:
  EmbeddingsBlock(const EncoderConfig& config, const EncoderNames& names, uint32_t first_site);

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;

 private:
  // Row of the position table for each token. RoBERTa counts from pad_token_id + 1 and leaves pad tokens out.
  at::Tensor position_rows(const tensors::PackedBatch& batch) const;

  bool counts_from_padding_;
  int64_t pad_token_id_;
  double layer_norm_eps_;
  double dropout_;
  uint32_t site_;
  size_t word_, position_, norm_weight_, norm_bias_;
  std::optional<size_t> token_type_;
};

}  // namespace strake::models
