#pragma once

#include "strake/models/block.h"
#include "strake/models/encoder/family.h"

namespace strake::models {

// Which row of the position table each token reads.
class PositionRule {
 public:
  explicit PositionRule(const EncoderConfig& config)
      : counts_from_padding_(find_family(config.model_type, "config.json").positions_follow_padding),
        pad_token_id_(config.pad_token_id) {}

  // Of one sequence: `rows` has room for as many numbers as there are ids.
  void write_rows(std::span<const int32_t> ids, int32_t* rows) const;

 private:
  bool counts_from_padding_;
  int64_t pad_token_id_;
};

// Word + position (+ token type) embeddings, layer norm, dropout: [T] -> [T, hidden_size].
class EmbeddingsBlock final : public Block {
 public:
  static constexpr size_t kWord = 0;  // in parameters(): what a tied head uses too

  // `word_copy`: a second name of the word embeddings in checkpoints, where a head is tied to them.
  EmbeddingsBlock(const EncoderConfig& config, const EncoderNames& names, uint32_t first_site,
                  const std::string& word_copy = "");

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;

 private:
  at::Tensor position_rows(const tensors::PackedBatch& batch) const;  // in memory of the host

  PositionRule positions_;
  double layer_norm_eps_;
  double dropout_;
  uint32_t site_;
  size_t word_, position_, norm_weight_, norm_bias_;
  std::optional<size_t> token_type_;
};

}  // namespace strake::models
