#include "strake/models/encoder/masked_language_model.h"

#include <ATen/TensorOperators.h>

#include "strake/models/encoder/family.h"
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
    : EncoderModel(std::move(config)), masking_(masking) {
  const MaskedHeadDesign& head = family().masked_head;
  const bool is_tied = this->config().tie_word_embeddings;
  add_encoder(EncoderLayerBlock::Output::kMaskedTokens, is_tied ? std::string(head.decoder) + ".weight" : "");
  add(std::make_unique<MaskedHeadBlock>(this->config(), head, label_smoothing));
}

tensors::PackedBatch MaskedLanguageModel::prepared(tensors::PackedBatch batch,
                                                   const std::optional<PhiloxKey>& key) const {
  return mask_tokens(std::move(batch), masking_, masking_key(key.value_or(PhiloxKey())));
}

at::Tensor MaskedLanguageModel::loss(const at::Tensor& nll, const at::Tensor& /*labels*/, double divisor) const {
  return nll.sum() / divisor;
}

bool MaskedLanguageModel::is_buffer(std::string_view name) const {
  const MaskedHeadDesign& head = family().masked_head;
  if (EncoderModel::is_buffer(name)) return true;
  return !config().tie_word_embeddings && head.untied_bias != nullptr && name == head.bias;
}

std::string masked_language_model_json(const EncoderConfig& config, const std::string& dtype) {
  Json json = config.document;
  json.erase("torch_dtype");
  json["architectures"] = {find_family(config.model_type, "config.json").masked_head.architecture};
  json["dtype"] = dtype;
  return json.dump(2) + "\n";
}

}  // namespace strake::models
