#include "strake/models/encoder/encoder_model.h"

#include "strake/models/encoder/embeddings.h"

namespace strake::models {

uint32_t EncoderModel::add_encoder(EncoderLayerBlock::Output output, const std::string& word_copy) {
  const EncoderNames& names = family().names;
  uint32_t site = 1;
  add(std::make_unique<EmbeddingsBlock>(config_, names, site++, word_copy));
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer, site += EncoderLayerBlock::kSites) {
    const bool is_last = layer + 1 == config_.num_hidden_layers;
    add(std::make_unique<EncoderLayerBlock>(
        config_, names,
        EncoderLayerBlock::Place{
            .layer = layer, .first_site = site, .output = is_last ? output : EncoderLayerBlock::Output::kAllTokens}));
  }
  return site;
}

}  // namespace strake::models
