#include "strake/models/encoder/sequence_classifier.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

namespace strake::models {
namespace {

// Of all sequences.
at::Tensor sum_of_losses(ProblemType problem, const at::Tensor& logits, const at::Tensor& labels,
                         double label_smoothing) {
  switch (problem) {
    case ProblemType::kRegression:
      return at::mse_loss(logits.squeeze(1), labels, at::Reduction::Sum);
    case ProblemType::kMultiLabelClassification:
      // By rows first: the sum of a long tensor is cut by the number of threads.
      return at::binary_cross_entropy_with_logits(logits, labels, {}, {}, at::Reduction::None).mean(1).sum();
    case ProblemType::kSingleLabelClassification:
      break;
  }
  return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, tensors::kIgnoredLabel, label_smoothing);
}

}  // namespace

SequenceClassifier::SequenceClassifier(EncoderConfig config, double label_smoothing)
    : EncoderModel(std::move(config)), label_smoothing_(label_smoothing) {
  const uint32_t site = add_encoder(EncoderLayerBlock::Output::kFirstTokens);
  add(family().classification_head(this->config(), site));
}

at::Tensor SequenceClassifier::loss(const at::Tensor& logits, const at::Tensor& labels, double divisor) const {
  return sum_of_losses(config().problem(), logits.to(at::kFloat), labels, label_smoothing_) / divisor;
}

}  // namespace strake::models
