#include "strake/tasks/masked_lm_config.h"

#include <algorithm>

#include "strake/core/error.h"
#include "strake/models/config_values.h"
#include "strake/models/encoder/family.h"
#include "strake/tasks/new_model_config.h"

namespace strake::tasks {

models::EncoderConfig read_masked_lm_config(const TrainConfig& config, const tokenizers::Tokenizer* tokenizer) {
  if (!config.model_name_or_path.empty()) return models::read_encoder_config(config.model_name_or_path);
  const bool is_of_family = !config.model_type.empty();
  NewModelConfig model = new_model_config(
      config, is_of_family ? models::find_family(config.model_type, "--model_type").defaults() : Json());
  if (tokenizer != nullptr) take_special_ids(model.document, *tokenizer, config.config_overrides);
  // Of a checkpoint they are as any others; Transformers trains them.
  models::refuse_flag(model.document, "sinusoidal_pos_embds", model.source);
  return models::parse_encoder_config(model.document, model.source);
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
