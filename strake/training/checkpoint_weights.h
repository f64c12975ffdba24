#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "strake/models/model.h"
#include "strake/training/sharded_parameters.h"

namespace strake::training {

struct CheckpointWeights {
  const models::Model& model;
  std::filesystem::path folder;
  uint64_t seed = 0;                      // of head tensors that are not there
  bool ignores_mismatched_sizes = false;  // of the head
};

// Gets a block's weights, fp32 [numel], as they were read.
using BlockUse = std::function<void(const at::Tensor& block)>;

// Fills this rank's shards, one block after the other, and logs what it has no use for. `use` may be empty. Returns the
// head tensors that are not there, which have initial values. Errors as of models::load_block, with the folder.
std::vector<std::string> load_checkpoint(const CheckpointWeights& from, training::ShardedParameters& parameters,
                                         const BlockUse& use = {});

}  // namespace strake::training
