#pragma once

#include "strake/models/encoder/encoder_model.h"

namespace strake::models {

// An encoder that gives each token a class.
class TokenClassifier final : public EncoderModel {
 public:
  explicit TokenClassifier(EncoderConfig config, double label_smoothing = 0);

  // Cross entropy of logits [T or more, num_labels], in fp32, for int64 labels [T], smoothed as Transformers'
  // LabelSmoother does. Tokens with kIgnoredLabel have none.
  at::Tensor loss(const at::Tensor& logits, const at::Tensor& labels, double divisor) const override;
  // At most: a dataset knows which of its tokens have a class.
  int64_t num_targets(int64_t length) const override { return length; }

 private:
  double label_smoothing_;
};

// The config.json of one, loadable by AutoModelForTokenClassification.
std::string token_classifier_json(const EncoderConfig& config, const std::string& dtype);

}  // namespace strake::models
