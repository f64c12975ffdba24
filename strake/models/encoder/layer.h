#pragma once

#include "strake/models/block.h"
#include "strake/models/encoder/family.h"

namespace strake::models {

// Post-norm transformer encoder layer (Vaswani et al. 2017, as in BERT): self-attention, then feed-forward, each
// followed by dropout, residual and layer norm. [T, hidden_size] -> the same; or of some tokens alone, the first of
// each sequence or the masked ones, which attend to all of them, with the bits that they have among the others.
class EncoderLayerBlock final : public Block {
 public:
  static constexpr uint32_t kSites = 3;  // dropout sites it uses from first_site on
  enum class Output { kAllTokens, kFirstTokens, kMaskedTokens };

  struct Place {
    int64_t layer = 0;
    uint32_t first_site = 0;
    Output output = Output::kAllTokens;
  };
  EncoderLayerBlock(const EncoderConfig& config, const EncoderNames& names, const Place& place);

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;

 private:
  // Weight and bias of a projection, stacked from several in the checkpoint.
  Affine add_projection(const char* name, const std::vector<std::string>& sources, int64_t outputs, int64_t inputs);

  at::Tensor after_attention(const Parameters& parameters, const at::Tensor& attended, const at::Tensor& residual,
                             const StepContext& context) const;

  // Of the configuration, whose document and labels may be large, what a pass needs.
  struct Shape {
    int64_t hidden_size;
    int64_t intermediate_size;
    int64_t num_heads;
    kernels::Activation activation;
    double layer_norm_eps;
    double attention_dropout;  // of probabilities
    double attention_output_dropout;
    double output_dropout;
  };

  Shape shape_;
  Place place_;
  Affine qkv_, attention_output_, attention_norm_, intermediate_, output_, output_norm_;
};

}  // namespace strake::models
