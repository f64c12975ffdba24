#include "strake/models/gpt2/gpt2.h"

#include <ATen/TensorOperators.h>

#include "strake/models/gpt2/embeddings.h"
#include "strake/models/gpt2/language_head.h"
#include "strake/models/gpt2/layer.h"

namespace strake::models {

Gpt2::Gpt2(Gpt2Config config, double label_smoothing) : config_(std::move(config)) {
  uint32_t site = 1;
  add(std::make_unique<Gpt2EmbeddingsBlock>(config_, site++));
  for (int64_t layer = 0; layer < config_.num_layers; ++layer, site += Gpt2LayerBlock::kSites) {
    add(std::make_unique<Gpt2LayerBlock>(config_, layer, site));
  }
  add(std::make_unique<Gpt2LanguageHeadBlock>(config_, label_smoothing));
}

at::Tensor Gpt2::loss(const at::Tensor& nll, const at::Tensor& /*labels*/, double divisor) const {
  return nll.sum() / divisor;
}

bool Gpt2::is_buffer(std::string_view name) const {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace strake::models
