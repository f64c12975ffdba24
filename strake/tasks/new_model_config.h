#pragma once

#include <string>

#include "strake/core/json.h"
#include "strake/tasks/train.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::tasks {

// The config.json of a model that is trained from scratch.
struct NewModelConfig {
  Json document;
  std::string source;  // for errors
};
// What --config_name holds, or else the defaults of --model_type, with --config_overrides.
NewModelConfig new_model_config(const TrainConfig& config, const Json& defaults);

// The embeddings of a new model are to have a row for each token that the tokenizer may give later: error (kConfig). Of
// other models only a warning.
void require_vocabulary_of(const tokenizers::Tokenizer& tokenizer, int64_t vocab_size, const TrainConfig& config);

// Gives a new model the ids of its tokenizer's special tokens, as Transformers' Trainer does, but for those that
// `overrides` names: generate() begins and stops with them. Ids outside of the vocabulary become null.
void take_special_ids(Json& document, const tokenizers::Tokenizer& tokenizer, const std::string& overrides);

// Applies "n_layer=4,resid_pdrop=0.0" to a configuration. Error (kUsage) for a key that is not there or a value of
// another type.
void override_config(Json& document, const std::string& overrides);

}  // namespace strake::tasks
