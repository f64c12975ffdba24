#include "strake/models/gpt2/embeddings.h"

#include "strake/models/layers/dropout.h"
#include "strake/models/layers/embedding.h"

namespace strake::models {

Gpt2EmbeddingsBlock::Gpt2EmbeddingsBlock(const Gpt2Config& config, uint32_t first_site)
    : Block("embeddings"),
      dropout_(config.embedding_dropout),
      site_(first_site),
      word_(add({.name = "embeddings.word",
                 .shape = {config.vocab_size, config.hidden_size},
                 .checkpoint_names = {"transformer.wte.weight"},
                 .checkpoint_copy = config.tie_word_embeddings ? "lm_head.weight" : ""})),
      position_(add({.name = "embeddings.position",
                     .shape = {config.max_positions, config.hidden_size},
                     .checkpoint_names = {"transformer.wpe.weight"}})) {}

at::Tensor Gpt2EmbeddingsBlock::forward(const Parameters& parameters, const at::Tensor& /*input*/,
                                        const StepContext& context) const {
  const at::Tensor sum = layers::embedding_sum({.word = parameters[word_],
                                                .position = parameters[position_],
                                                .token_type = std::nullopt,
                                                .position_rows = context.batch.positions,
                                                .host_position_rows = context.batch.on_host().positions},
                                               context.batch);
  return layers::dropout(sum, context.dropout(site_, dropout_), context);
}

PlannedTensor Gpt2EmbeddingsBlock::plan(PlannedGraph& graph, const PlannedTensor& /*input*/) const {
  const Trained any_table = is_trained() ? Trained::kYes : Trained::kNo;
  const PlannedTensor sum = layers::embedding_sum(graph, layout().entries()[word_].shape[1], any_table);
  return layers::dropout(graph, sum, dropout_);
}

}  // namespace strake::models
