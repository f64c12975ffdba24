#pragma once

#include <filesystem>

#include "strake/inference/head.h"
#include "strake/inference/precision.h"
#include "strake/models/encoder/config.h"

namespace strake::inference {

// Whether packed weights are kept in a file beside the model, for later starts (packed_file.h).
enum class PackedWeights { kOff, kKept };

// Which weights an engine takes, and in which form.
struct EncoderSource {
  const std::filesystem::path& folder;
  const models::EncoderConfig& config;  // the folder's
  const PrecisionPlan& plan;
  const Head& head;
  PackedWeights packed = PackedWeights::kOff;
};

}  // namespace strake::inference
