#include "strake/models/encoder/sequence_classifier.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

#include "strake/models/encoder/embeddings.h"
#include "strake/models/encoder/family.h"
#include "strake/models/encoder/layer.h"

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
    : config_(std::move(config)), label_smoothing_(label_smoothing) {
  const EncoderFamily& family = find_family(config_.model_type, "config.json");
  uint32_t site = 1;
  add(std::make_unique<EmbeddingsBlock>(config_, family.names, site++));
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer, site += EncoderLayerBlock::kSites) {
    const bool is_last = layer + 1 == config_.num_hidden_layers;
    const auto output = is_last ? EncoderLayerBlock::Output::kFirstTokens : EncoderLayerBlock::Output::kAllTokens;
    add(std::make_unique<EncoderLayerBlock>(
        config_, family.names, EncoderLayerBlock::Place{.layer = layer, .first_site = site, .output = output}));
  }
  add(family.classification_head(config_, site));
}

std::string SequenceClassifier::checkpoint_prefix() const {
  return find_family(config_.model_type, "config.json").names.prefix;
}

at::Tensor SequenceClassifier::loss(const at::Tensor& logits, const at::Tensor& labels, double divisor) const {
  return sum_of_losses(config_.problem(), logits.to(at::kFloat), labels, label_smoothing_) / divisor;
}

}  // namespace strake::models
