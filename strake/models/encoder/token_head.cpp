#include "strake/models/encoder/token_head.h"

#include "strake/models/layers/dropout.h"
#include "strake/models/layers/linear.h"

namespace strake::models {

TokenHeadBlock::TokenHeadBlock(const EncoderConfig& config, const std::string& checkpoint_name, int64_t outputs,
                               const Dropout& dropout)
    : Block("head"), dropout_(dropout) {
  weight_ = add({.name = "head.classifier.weight",
                 .shape = {outputs, config.hidden_size},
                 .checkpoint_names = {checkpoint_name + ".weight"},
                 .is_head = true});
  bias_ = add({.name = "head.classifier.bias",
               .shape = {outputs},
               .initialization = Initialization::kZeros,
               .decay = WeightDecay::kExempt,
               .checkpoint_names = {checkpoint_name + ".bias"},
               .is_head = true});
}

at::Tensor TokenHeadBlock::forward(const Parameters& p, const at::Tensor& input, const StepContext& context) const {
  const at::Tensor dropped = layers::dropout(input, context.dropout(dropout_.site, dropout_.probability), context);
  return layers::linear(dropped, p[weight_], p[bias_]);
}

PlannedTensor TokenHeadBlock::plan(PlannedGraph& graph, const PlannedTensor& input) const {
  const PlannedTensor dropped = layers::dropout(graph, input, dropout_.probability);
  return layers::linear(graph, dropped, layout().entries()[bias_].shape[0], trained({weight_, bias_}));
}

}  // namespace strake::models
