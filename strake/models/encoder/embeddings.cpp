#include "strake/models/encoder/embeddings.h"

#include <ATen/ops/empty.h>

#include "strake/models/layers/dropout.h"
#include "strake/models/layers/embedding.h"
#include "strake/models/layers/residual_layer_norm.h"

namespace strake::models {
namespace {

std::string in_checkpoint(const EncoderNames& names, const char* part, const char* tensor) {
  return std::string(names.prefix) + part + tensor;
}

}  // namespace

void PositionRule::write_rows(std::span<const int32_t> ids, int32_t* rows) const {
  const auto padding = static_cast<int32_t>(pad_token_id_);
  int32_t next = counts_from_padding_ ? padding + 1 : 0;
  for (const int32_t id : ids) *rows++ = counts_from_padding_ && id == padding ? padding : next++;
}

EmbeddingsBlock::EmbeddingsBlock(const EncoderConfig& config, const EncoderNames& names, uint32_t first_site,
                                 const std::string& word_copy)
    : Block("embeddings"),
      positions_(config),
      layer_norm_eps_(config.layer_norm_eps),
      dropout_(config.hidden_dropout),
      site_(first_site),
      word_(add({.name = "embeddings.word",
                 .shape = {config.vocab_size, config.hidden_size},
                 .checkpoint_names = {in_checkpoint(names, names.word_embeddings, ".weight")},
                 .checkpoint_copy = word_copy})),
      position_(add({.name = "embeddings.position",
                     .shape = {config.max_position_embeddings, config.hidden_size},
                     .checkpoint_names = {in_checkpoint(names, names.position_embeddings, ".weight")}})),
      norm_weight_(add({.name = "embeddings.norm.weight",
                        .shape = {config.hidden_size},
                        .initialization = Initialization::kOnes,
                        .decay = WeightDecay::kExempt,
                        .checkpoint_names = {in_checkpoint(names, names.embeddings_norm, ".weight")}})),
      norm_bias_(add({.name = "embeddings.norm.bias",
                      .shape = {config.hidden_size},
                      .initialization = Initialization::kZeros,
                      .decay = WeightDecay::kExempt,
                      .checkpoint_names = {in_checkpoint(names, names.embeddings_norm, ".bias")}})) {
  if (names.token_type_embeddings == nullptr) return;
  token_type_ = add({.name = "embeddings.token_type",
                     .shape = {config.type_vocab_size, config.hidden_size},
                     .checkpoint_names = {in_checkpoint(names, names.token_type_embeddings, ".weight")}});
}

at::Tensor EmbeddingsBlock::forward(const Parameters& parameters, const at::Tensor& /*input*/,
                                    const StepContext& context) const {
  const at::Tensor rows = position_rows(context.batch);
  const at::Tensor sum =
      layers::embedding_sum({.word = parameters[word_],
                             .position = parameters[position_],
                             .token_type = token_type_ ? std::optional(parameters[*token_type_]) : std::nullopt,
                             .position_rows = tensors::to_device(rows, context.batch.positions.device()),
                             .host_position_rows = rows},
                            context.batch);
  const at::Tensor normed =
      layers::layer_norm(sum, {parameters[norm_weight_], parameters[norm_bias_], layer_norm_eps_}, context);
  return layers::dropout(normed, context.dropout(site_, dropout_), context);
}

at::Tensor EmbeddingsBlock::position_rows(const tensors::PackedBatch& placed) const {
  const tensors::PackedBatch& batch = placed.on_host();
  at::Tensor rows = at::empty({placed.num_tokens()}, batch.positions.options());
  const auto* ids = batch.input_ids.const_data_ptr<int32_t>();
  const auto* offsets = batch.offsets.const_data_ptr<int32_t>();
  auto* out = rows.mutable_data_ptr<int32_t>();
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    positions_.write_rows({ids + offsets[s], ids + offsets[s + 1]}, out + offsets[s]);
  }
  // Tokens that fill the batch up are its first.
  for (int64_t t = batch.num_tokens(); t < placed.num_tokens(); ++t) out[t] = out[0];
  return rows;
}

PlannedTensor EmbeddingsBlock::plan(PlannedGraph& graph, const PlannedTensor& /*input*/) const {
  const auto is_trained_table = [&](size_t i) { return parameters()[i].trained == Trained::kYes; };
  const bool any_table =
      is_trained_table(word_) || is_trained_table(position_) || (token_type_ && is_trained_table(*token_type_));
  const PlannedTensor sum =
      layers::embedding_sum(graph, layout().entries()[word_].shape[1], any_table ? Trained::kYes : Trained::kNo);
  const PlannedTensor normed = layers::layer_norm(graph, sum, trained({norm_weight_, norm_bias_}));
  return layers::dropout(graph, normed, dropout_);
}

}  // namespace strake::models
