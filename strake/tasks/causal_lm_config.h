#pragma once

#include "strake/models/gpt2/config.h"
#include "strake/tasks/train.h"

namespace strake::tasks {

// The model that --model_name_or_path, or --model_type or --config_name with --config_overrides, stand for.
models::Gpt2Config read_causal_lm_config(const TrainConfig& config);

// Tokens of a piece of text without --block_size.
int64_t default_block_size(const models::Gpt2Config& model);

// Applies "n_layer=4,resid_pdrop=0.0" to a configuration. Error (kUsage) for a key that is not there or a value of
// another type.
void override_config(Json& document, const std::string& overrides);

}  // namespace strake::tasks
