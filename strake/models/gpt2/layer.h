#pragma once

#include "strake/models/block.h"
#include "strake/models/gpt2/config.h"

namespace strake::models {

// Pre-norm transformer decoder layer (Radford et al. 2019): causal self-attention, then feed-forward, each on the
// normed stream and added to it after dropout. [T, hidden_size] -> the same.
class Gpt2LayerBlock final : public Block {
 public:
  static constexpr uint32_t kSites = 3;  // dropout sites it uses from first_site on

  Gpt2LayerBlock(const Gpt2Config& config, int64_t layer, uint32_t first_site);

  at::Tensor forward(const Parameters& parameters, const at::Tensor& input, const StepContext& context) const override;
  PlannedTensor plan(PlannedGraph& graph, const PlannedTensor& input) const override;

 private:
  struct Projection {
    const char* name;
    std::string checkpoint_name;
    int64_t outputs;
    int64_t inputs;
    double initial_scale = 1;
  };
  Affine add_projection(const Projection& projection);

  // Of the configuration, whose document may be large, what a pass needs.
  struct Shape {
    int64_t hidden_size;
    int64_t intermediate_size;
    int64_t num_heads;
    kernels::Activation activation;
    double layer_norm_eps;
    double attention_dropout;  // of probabilities
    double residual_dropout;
    bool scale_attention;
  };

  Shape shape_;
  uint32_t first_site_;
  Affine attention_norm_, qkv_, attention_output_, feed_forward_norm_, intermediate_, output_;
};

}  // namespace strake::models
