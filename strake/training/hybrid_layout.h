#pragma once

#include "strake/tensors/flat_layout.h"

// Who has which piece of a flat buffer under hybrid sharding, where consecutive ranks form groups (nodes) that each
// have all parameters, as FSDP's HYBRID_SHARD and MiCS (Zhang et al., VLDB 2022).
namespace strake::training {

// Rank g * G + l of a world of R groups of G ranks gets piece l * R + g: the pieces of the ranks with the same place l
// in their groups lie side by side, and together are place l's piece within a group.
tensors::ShardLayout hybrid_layout(int64_t numel, int world, int group);

// The pieces of the ranks of one group, from the hybrid layout of the world.
tensors::ShardLayout group_layout(const tensors::ShardLayout& world, int group);

// The pieces of the ranks with the same place, counted from the beginning of the first.
tensors::ShardLayout replica_layout(const tensors::ShardLayout& world, int group, int place);

}  // namespace strake::training
