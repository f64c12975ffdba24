#include "strake/models/encoder/masked_head.h"

#include "strake/models/encoder/embeddings.h"
#include "strake/models/layers/linear.h"
#include "strake/models/layers/residual_layer_norm.h"
#include "strake/models/layers/token_nll.h"

namespace strake::models {
namespace {

ParameterSpec head_bias(const char* name, int64_t width, const std::string& checkpoint_name) {
  return {.name = name,
          .shape = {width},
          .initialization = Initialization::kZeros,
          .decay = WeightDecay::kExempt,
          .checkpoint_names = {checkpoint_name},
          .is_head = true};
}

ParameterSpec head_weight(const char* name, std::vector<int64_t> shape, const std::string& layer) {
  return {.name = name, .shape = std::move(shape), .checkpoint_names = {layer + ".weight"}, .is_head = true};
}

}  // namespace

MaskedHeadBlock::MaskedHeadBlock(const EncoderConfig& config, const MaskedHeadDesign& design, double label_smoothing)
    : Block("head"),
      vocab_size_(config.vocab_size),
      activation_(design.activation.value_or(config.hidden_act)),
      layer_norm_eps_(config.layer_norm_eps),
      label_smoothing_(static_cast<float>(label_smoothing)) {
  const int64_t hidden = config.hidden_size;
  const std::string dense(design.dense);
  const std::string norm(design.norm);
  dense_.weight = add(head_weight("head.dense.weight", {hidden, hidden}, dense));
  dense_.bias = add(head_bias("head.dense.bias", hidden, dense + ".bias"));
  ParameterSpec norm_weight = head_weight("head.norm.weight", {hidden}, norm);
  norm_weight.initialization = Initialization::kOnes;
  norm_weight.decay = WeightDecay::kExempt;
  norm_.weight = add(std::move(norm_weight));
  norm_.bias = add(head_bias("head.norm.bias", hidden, norm + ".bias"));
  const bool has_other_name = design.untied_bias != nullptr;
  const bool is_tied = config.tie_word_embeddings;
  ParameterSpec bias =
      head_bias("head.projection.bias", vocab_size_, has_other_name && !is_tied ? design.untied_bias : design.bias);
  if (has_other_name && is_tied) bias.checkpoint_copy = design.untied_bias;
  bias_ = add(std::move(bias));
  if (is_tied) {
    projection_ = parameters().size() + tie({.block = 0, .parameter = EmbeddingsBlock::kWord});
  } else {
    projection_ = add(head_weight("head.projection.weight", {vocab_size_, hidden}, design.decoder));
  }
}

at::Tensor MaskedHeadBlock::forward(const Parameters& p, const at::Tensor& input, const StepContext& context) const {
  const at::Tensor dense = layers::linear_activation(input, p[dense_.weight], p[dense_.bias], activation_);
  const at::Tensor normed = layers::layer_norm(dense, {p[norm_.weight], p[norm_.bias], layer_norm_eps_}, context);
  return layers::target_nll(normed, context.batch.on_host().targets,
                            {.weight = p[projection_], .bias = p[bias_], .smoothing = label_smoothing_}, context);
}

PlannedTensor MaskedHeadBlock::plan(PlannedGraph& graph, const PlannedTensor& input) const {
  const PlannedTensor dense = layers::linear_activation(graph, input, input.columns, trained(dense_));
  const PlannedTensor normed = layers::layer_norm(graph, dense, trained(norm_));
  const Trained projection = tied().empty() ? parameters()[projection_].trained : tied().front().trained;
  return layers::target_nll(graph, normed, vocab_size_, {projection, parameters()[bias_].trained});
}

}  // namespace strake::models
