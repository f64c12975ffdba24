#include "strake/tasks/masked_lm_config.h"

#include <algorithm>

#include "strake/core/error.h"
#include "strake/tasks/new_model_config.h"

namespace strake::tasks {
namespace {

// Transformers' BertConfig(), RobertaConfig() and DistilBertConfig(), as far as they say how to compute.
Json encoder_defaults(const std::string& model_type) {
  if (model_type == "distilbert") {
    return {{"model_type", model_type},
            {"vocab_size", 30522},
            {"max_position_embeddings", 512},
            {"n_layers", 6},
            {"n_heads", 12},
            {"dim", 768},
            {"hidden_dim", 3072},
            {"dropout", 0.1},
            {"attention_dropout", 0.1},
            {"activation", "gelu"},
            {"initializer_range", 0.02},
            {"sinusoidal_pos_embds", false},
            {"pad_token_id", 0},
            {"tie_word_embeddings", true},
            {"seq_classif_dropout", 0.2}};
  }
  const bool is_roberta = model_type == "roberta";
  return {{"model_type", model_type},
          {"vocab_size", is_roberta ? 50265 : 30522},
          {"hidden_size", 768},
          {"num_hidden_layers", 12},
          {"num_attention_heads", 12},
          {"intermediate_size", 3072},
          {"hidden_act", "gelu"},
          {"hidden_dropout_prob", 0.1},
          {"attention_probs_dropout_prob", 0.1},
          {"max_position_embeddings", 512},
          {"type_vocab_size", 2},
          {"initializer_range", 0.02},
          {"layer_norm_eps", 1e-12},
          {"pad_token_id", is_roberta ? 1 : 0},
          {"tie_word_embeddings", true}};
}

}  // namespace

models::EncoderConfig read_masked_lm_config(const TrainConfig& config, const tokenizers::Tokenizer* tokenizer) {
  if (!config.model_name_or_path.empty()) return models::read_encoder_config(config.model_name_or_path);
  NewModelConfig model = new_model_config(config, encoder_defaults(config.model_type));
  if (tokenizer != nullptr) take_special_ids(model.document, *tokenizer, config.config_overrides);
  return models::parse_encoder_config(model.document, model.source);
}

int64_t default_piece_length(const models::EncoderConfig& model) {
  return std::min<int64_t>(model.max_sequence_length(), 1024);
}

void require_mlm_probability(double probability) {
  require(probability > 0 && probability <= 1, ErrorKind::kUsage, "--mlm_probability {} is not in (0, 1]", probability);
}

void require_masked_piece(int64_t max_seq_length) {
  constexpr int64_t kLeastLength = 3;  // two special tokens and one of the text
  require(max_seq_length >= kLeastLength, ErrorKind::kUsage,
          "--max_seq_length {}: with --task masked-lm a piece has at least {} tokens, of which two are special",
          max_seq_length, kLeastLength);
}

models::TokenMasking masking_of(double probability, const tokenizers::Tokenizer& tokenizer, int64_t vocab_size) {
  const std::optional<int32_t> mask = tokenizer.id_of_role("mask_token");
  require(mask && *mask < vocab_size, ErrorKind::kConfig, "--task masked-lm: {}",
          mask ? fmt::format("the mask token {} is not in the model's vocabulary of {}", *mask, vocab_size)
               : "the tokenizer has no mask token");
  return {.probability = probability, .mask_token = *mask, .num_tokens = std::min(vocab_size, tokenizer.vocab_size())};
}

}  // namespace strake::tasks
