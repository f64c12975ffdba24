#include "strake/models/gpt2/language_head.h"

#include "strake/models/gpt2/embeddings.h"
#include "strake/models/layers/residual_layer_norm.h"
#include "strake/models/layers/token_nll.h"

namespace strake::models {

Gpt2LanguageHeadBlock::Gpt2LanguageHeadBlock(const Gpt2Config& config, double label_smoothing)
    : Block("head"),
      vocab_size_(config.vocab_size),
      layer_norm_eps_(config.layer_norm_eps),
      label_smoothing_(static_cast<float>(label_smoothing)),
      norm_(add_norm("head.norm", "transformer.ln_f", config.hidden_size)) {
  if (config.tie_word_embeddings) {
    projection_ = parameters().size() + tie({.block = 0, .parameter = Gpt2EmbeddingsBlock::kWord});
  } else {
    projection_ = add({.name = "head.projection",
                       .shape = {config.vocab_size, config.hidden_size},
                       .checkpoint_names = {"lm_head.weight"},
                       .is_head = true});
  }
}

at::Tensor Gpt2LanguageHeadBlock::forward(const Parameters& p, const at::Tensor& input,
                                          const StepContext& context) const {
  const at::Tensor normed = layers::layer_norm(input, {p[norm_.weight], p[norm_.bias], layer_norm_eps_}, context);
  return layers::token_nll(normed, p[projection_], context, label_smoothing_);
}

PlannedTensor Gpt2LanguageHeadBlock::plan(PlannedGraph& graph, const PlannedTensor& input) const {
  const PlannedTensor normed = layers::layer_norm(graph, input, trained(norm_));
  const Trained projection = tied().empty() ? parameters()[projection_].trained : tied().front().trained;
  return layers::token_nll(graph, normed, vocab_size_, projection);
}

}  // namespace strake::models
