#include "strake/models/encoder/token_classifier.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "strake/models/encoder/family.h"
#include "strake/models/encoder/token_head.h"

namespace strake::models {

TokenClassifier::TokenClassifier(EncoderConfig config, double label_smoothing)
    : EncoderModel(std::move(config)), label_smoothing_(label_smoothing) {
  const EncoderConfig& own = this->config();
  const uint32_t site = add_encoder(EncoderLayerBlock::Output::kAllTokens);
  const double dropout = own.*family().token_dropout;
  add(std::make_unique<TokenHeadBlock>(own, "classifier", own.num_labels(), TokenHeadBlock::Dropout{site, dropout}));
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
