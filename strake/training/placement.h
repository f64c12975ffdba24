#pragma once

#include <cstdint>
#include <vector>

#include "strake/tensors/flat_layout.h"
#include "strake/training/sharding.h"
#include "strake/training/units.h"

namespace strake::training {

// Where one rank keeps the state of one unit, in elements of the unit's flat buffer: what ShardedParameters allocates
// and plan_memory counts.
struct UnitPlacement {
  tensors::ShardLayout layout;  // each rank's piece of gradients and optimizer state; of a frozen unit's fp32 weights
  int64_t begin = 0;            // the rank's own part: which it updates, and of which it has the fp32 weights
  int64_t count = 0;
  int64_t kept_begin = 0;  // parameters that stay with the rank between passes; the own part is among them
  int64_t kept_count = 0;
  bool is_frozen = false;   // no gradient, no optimizer state, no update
  bool owns_whole = false;  // every rank's own part is everything
  bool is_kept_whole = true;
  bool is_shared = false;        // the whole parameters are one buffer of all ranks
  bool is_on_disk = false;       // optimizer state and master weights of the own part
  bool keeps_parameters = true;  // in memory; false: they are on disk between passes
  // Of ranks on GPUs, in the host's memory: optimizer state and master weights of the own part, and the kept
  // parameters.
  bool has_states_on_host = false;
  bool is_kept_on_host = false;
};

struct PlacementRequest {
  const Units& units;
  const ShardingOptions& sharding;
  int rank = 0;
  int num_ranks = 1;
  bool shares_memory = true;  // comm::Comm::shares_memory()
};

// By unit. The fp32 weights of a frozen unit are spread over the ranks in every stage: nobody updates them, and what is
// written to a checkpoint is gathered first. Error (kUsage) for hybrid sharding with groups that do not divide the
// ranks.
std::vector<UnitPlacement> place_units(const PlacementRequest& request);

}  // namespace strake::training
