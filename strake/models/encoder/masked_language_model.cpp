#include "strake/models/encoder/masked_language_model.h"

#include <ATen/TensorOperators.h>

#include "strake/models/encoder/embeddings.h"
#include "strake/models/encoder/family.h"
#include "strake/models/encoder/layer.h"
#include "strake/models/encoder/masked_head.h"

namespace strake::models {
namespace {

// Beside that of dropout, whose key is the same.
PhiloxKey masking_key(const PhiloxKey& key) {
  constexpr uint64_t kMasking = 0x6D61736B;  // "mask"
  return philox_key(uint64_t{key.k1} << 32 | key.k0, kMasking);
}

}  // namespace

MaskedLanguageModel::MaskedLanguageModel(EncoderConfig config, const TokenMasking& masking, double label_smoothing)
    : config_(std::move(config)), masking_(masking) {
  const EncoderFamily& family = find_family(config_.model_type, "config.json");
  const MaskedHeadNames& head = family.masked_head;
  const std::string word_copy = config_.tie_word_embeddings ? std::string(head.decoder) + ".weight" : "";
  uint32_t site = 1;
  add(std::make_unique<EmbeddingsBlock>(config_, family.names, site++, word_copy));
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer, site += EncoderLayerBlock::kSites) {
    const bool is_last = layer + 1 == config_.num_hidden_layers;
    const auto output = is_last ? EncoderLayerBlock::Output::kMaskedTokens : EncoderLayerBlock::Output::kAllTokens;
    add(std::make_unique<EncoderLayerBlock>(
        config_, family.names, EncoderLayerBlock::Place{.layer = layer, .first_site = site, .output = output}));
  }
  add(std::make_unique<MaskedHeadBlock>(config_, head, label_smoothing));
}

tensors::PackedBatch MaskedLanguageModel::prepared(tensors::PackedBatch batch,
                                                   const std::optional<PhiloxKey>& key) const {
  return mask_tokens(std::move(batch), masking_, masking_key(key.value_or(PhiloxKey())));
}

at::Tensor MaskedLanguageModel::loss(const at::Tensor& nll, const at::Tensor& /*labels*/, double divisor) const {
  return nll.sum() / divisor;
}

std::string MaskedLanguageModel::checkpoint_prefix() const {
  return find_family(config_.model_type, "config.json").names.prefix;
}

bool MaskedLanguageModel::is_buffer(std::string_view name) const {
  const MaskedHeadNames& head = find_family(config_.model_type, "config.json").masked_head;
  return !config_.tie_word_embeddings && head.untied_bias != nullptr && name == head.bias;
}

std::string masked_language_model_json(const EncoderConfig& config, const std::string& dtype) {
  Json json = config.document;
  json.erase("torch_dtype");
  json["architectures"] = {find_family(config.model_type, "config.json").masked_head.architecture};
  json["dtype"] = dtype;
  return json.dump(2) + "\n";
}

}  // namespace strake::models
