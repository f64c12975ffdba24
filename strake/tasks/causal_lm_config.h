#pragma once

#include "strake/models/gpt2/config.h"
#include "strake/tasks/train.h"

namespace strake::tasks {

// The model that --model_name_or_path, or --model_type or --config_name with --config_overrides, stand for.
models::Gpt2Config read_causal_lm_config(const TrainConfig& config);

// --block_size, or without it (0) the default. Error (kUsage) if the model has fewer positions.
int64_t choose_block_size(int64_t block_size, const models::Gpt2Config& model);
// Tokens of a piece of text: as many as the model has positions, at most 1024.
int64_t default_block_size(const models::Gpt2Config& model);

}  // namespace strake::tasks
