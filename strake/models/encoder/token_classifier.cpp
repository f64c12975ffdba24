#include "strake/models/encoder/token_classifier.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "strake/models/encoder/embeddings.h"
#include "strake/models/encoder/family.h"
#include "strake/models/encoder/layer.h"
#include "strake/models/encoder/token_head.h"

namespace strake::models {

TokenClassifier::TokenClassifier(EncoderConfig config, double label_smoothing)
    : config_(std::move(config)), label_smoothing_(label_smoothing) {
  const EncoderFamily& family = find_family(config_.model_type, "config.json");
  // Transformers' DistilBERT has one more dropout for classifiers of texts, and not of tokens.
  if (config_.model_type == "distilbert") config_.classifier_dropout = config_.hidden_dropout;
  uint32_t site = 1;
  add(std::make_unique<EmbeddingsBlock>(config_, family.names, site++));
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer, site += EncoderLayerBlock::kSites) {
    add(std::make_unique<EncoderLayerBlock>(config_, family.names,
                                            EncoderLayerBlock::Place{.layer = layer, .first_site = site}));
  }
  add(std::make_unique<TokenHeadBlock>(config_, "classifier", config_.num_labels(), site));
}

std::string TokenClassifier::checkpoint_prefix() const {
  return find_family(config_.model_type, "config.json").names.prefix;
}

at::Tensor TokenClassifier::loss(const at::Tensor& logits, const at::Tensor& labels, double divisor) const {
  // Token by token first: smoothing, too, is a sum over classes alone.
  const at::Tensor of_batch = logits.narrow(0, 0, labels.size(0)).to(at::kFloat);
  return at::cross_entropy_loss(of_batch, labels, {}, at::Reduction::None, tensors::kIgnoredLabel, label_smoothing_)
             .sum() /
         divisor;
}

std::string token_classifier_json(const EncoderConfig& config, const std::string& dtype) {
  Json json = Json::parse(to_json_text(config, dtype));
  json["architectures"] = {find_family(config.model_type, "config.json").token_architecture};
  json.erase("problem_type");
  return json.dump(2) + "\n";
}

}  // namespace strake::models
