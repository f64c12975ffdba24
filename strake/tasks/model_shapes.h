#pragma once

#include "strake/models/encoder/config.h"
#include "strake/models/gpt2/config.h"
#include "strake/monitor/flops.h"

namespace strake::tasks {

// What the arithmetic of a model depends on.
monitor::EncoderShape shape_of(const models::EncoderConfig& config);
monitor::DecoderShape shape_of(const models::Gpt2Config& config);

}  // namespace strake::tasks
