#pragma once

#include "strake/models/gpt2/config.h"
#include "strake/tasks/train.h"

namespace strake::tasks {

inline constexpr const char* kCausalLm = "causal-lm";  // --task

// The model that --model_name_or_path, or --model_type or --config_name with --config_overrides, stand for.
models::Gpt2Config read_causal_lm_config(const TrainConfig& config);

// Gives a new model the ids of its tokenizer's special tokens, as Transformers' Trainer does, but for those that
// `overrides` names: generate() begins and stops with them. Ids outside of the vocabulary become null.
void take_special_ids(models::Gpt2Config& model, const tokenizers::Tokenizer& tokenizer, const std::string& overrides);

// Tokens of a piece of text without --block_size.
int64_t default_block_size(const models::Gpt2Config& model);

// Applies "n_layer=4,resid_pdrop=0.0" to a configuration. Error (kUsage) for a key that is not there or a value of
// another type.
void override_config(Json& document, const std::string& overrides);

}  // namespace strake::tasks
