#pragma once

#include <cstdint>
#include <vector>

#include "strake/models/model.h"
#include "strake/tensors/flat_layout.h"
#include "strake/training/sharding.h"

namespace strake::training {

// Where one rank keeps the state of one block, in elements of the block's flat buffer: what ShardedParameters allocates
// and plan_memory counts.
struct BlockPlacement {
  tensors::ShardLayout layout;  // each rank's piece of gradients and optimizer state
  int64_t begin = 0;            // the rank's own part, which it updates
  int64_t count = 0;
  int64_t kept_begin = 0;  // parameters in memory between passes
  int64_t kept_count = 0;
  bool is_kept_whole = true;
  bool is_shared = false;        // the whole parameters are one buffer of all ranks, which are threads of one process
  bool is_on_disk = false;       // optimizer state and master weights of the own part
  bool keeps_parameters = true;  // false: they are on disk between passes
};

struct PlacementRequest {
  const models::Model& model;
  const ShardingOptions& sharding;
  int rank = 0;
  int num_ranks = 1;
  bool is_one_process = true;  // ranks are threads that can share memory
};

// By block. Error (kUsage) for hybrid sharding with groups that do not divide the ranks, (kConfig) for what hybrid
// sharding cannot have on disk.
std::vector<BlockPlacement> place_blocks(const PlacementRequest& request);

}  // namespace strake::training
