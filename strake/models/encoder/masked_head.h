#pragma once

#include <optional>
#include <string>

#include "strake/models/block.h"
#include "strake/models/encoder/config.h"

namespace strake::models {

// Where checkpoints of a family have the head of its masked language model, and how it is built. Names of layers are
// without .weight.
struct MaskedHeadDesign {
  const char* architecture;  // Transformers' class of the model
  const char* dense;
  const char* norm;
  const char* decoder;  // its weight is that of the word embeddings where they are tied
  const char* bias;     // of the decoder
  // Null, or another name of `bias`, where Transformers has it if the weight is not tied: what it has under the first
  // name is then nothing that is computed with.
  const char* untied_bias;
  std::optional<kernels::Activation> activation;  // empty: that of the layers
};

// Masked tokens through dense, activation and layer norm, then cross entropy over the vocabulary: [N, hidden_size] ->
// the negative log-likelihood of each of the batch's targets, fp32 [N]. Logits of all are never there at once.
class MaskedHeadBlock final : public Block {
 public:
  MaskedHeadBlock(const EncoderConfig& config, const MaskedHeadDesign& design, double label_smoothing);

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;

 private:
  int64_t vocab_size_;
  kernels::Activation activation_;
  double layer_norm_eps_;
  float label_smoothing_;
  Affine dense_, norm_;
  size_t bias_;
  size_t projection_;
};

}  // namespace strake::models
