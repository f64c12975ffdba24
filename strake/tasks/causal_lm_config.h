#pragma once

#include "strake/models/gpt2/config.h"
#include "strake/tasks/train.h"

namespace strake::tasks {

// The model that --model_name_or_path, or --model_type or --config_name with --config_overrides, stand for.
models::Gpt2Config read_causal_lm_config(const TrainConfig& config);

}  // namespace strake::tasks
