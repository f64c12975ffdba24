#include "strake/models/encoder/classification_head.h"

#include "strake/models/layers/dropout.h"
#include "strake/models/layers/linear.h"

namespace strake::models {

ClassificationHeadBlock::ClassificationHeadBlock(const EncoderConfig& config, const Design& design, uint32_t first_site)
    : Block("head"), design_(design), dropout_(config.classifier_dropout), first_site_(first_site) {
  const std::string dense(design.dense);
  const std::string classifier(design.classifier);
  dense_weight_ = add({.name = "head.dense.weight",
                       .shape = {config.hidden_size, config.hidden_size},
                       .checkpoint_names = {dense + ".weight"},
                       .is_head = true});
  dense_bias_ = add({.name = "head.dense.bias",
                     .shape = {config.hidden_size},
                     .initialization = Initialization::kZeros,
                     .decay = WeightDecay::kExempt,
                     .checkpoint_names = {dense + ".bias"},
                     .is_head = true});
  classifier_weight_ = add({.name = "head.classifier.weight",
                            .shape = {config.num_labels(), config.hidden_size},
                            .checkpoint_names = {classifier + ".weight"},
                            .is_head = true});
  classifier_bias_ = add({.name = "head.classifier.bias",
                          .shape = {config.num_labels()},
                          .initialization = Initialization::kZeros,
                          .decay = WeightDecay::kExempt,
                          .checkpoint_names = {classifier + ".bias"},
                          .is_head = true});
}

at::Tensor ClassificationHeadBlock::forward(const Parameters& p, const at::Tensor& input,
                                            const StepContext& context) const {
  at::Tensor first = input;
  if (design_.dropout_before_dense) {
    first = layers::dropout_of_sequences(first, context.dropout(first_site_, dropout_), context);
  }
  const at::Tensor dense = layers::linear_activation(first, p[dense_weight_], p[dense_bias_], design_.activation);
  const at::Tensor dropped = layers::dropout_of_sequences(dense, context.dropout(first_site_ + 1, dropout_), context);
  return layers::linear(dropped, p[classifier_weight_], p[classifier_bias_]);
}

PlannedTensor ClassificationHeadBlock::plan(PlannedGraph& graph, const PlannedTensor& input) const {
  PlannedTensor first = input;
  if (design_.dropout_before_dense) first = layers::dropout(graph, first, dropout_);
  const PlannedTensor dense =
      layers::linear_activation(graph, first, input.columns, trained({dense_weight_, dense_bias_}));
  const PlannedTensor dropped = layers::dropout(graph, dense, dropout_);
  return layers::linear(graph, dropped, layout().entries()[classifier_bias_].shape[0],
                        trained({classifier_weight_, classifier_bias_}));
}

}  // namespace strake::models
