#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>

#include "strake/core/scratch_file.h"

namespace strake::training {

// How much of a unit's state one rank keeps.
enum class Kept {
  kWhole,       // all of it
  kGroupShard,  // its piece within a group of ranks; every group has a copy
  kWorldShard   // its piece among all ranks
};

enum class Gathered { kNever, kAfterUpdate, kForEachPass };  // when ranks complete their parameters
enum class Reduced { kToAllRanks, kToShards };               // where the gradient of a step ends up

// ZeRO (Rajbhandari et al., SC 2020) and FSDP's strategies: what a rank keeps of the parameters, and of what updates
// them; when parameters are gathered and where gradients are reduced to follows. The loop over units is the same for
// all.
struct ShardingStage {
  const char* name;
  Kept parameters;
  Kept updating;  // gradients, master weights and the optimizer's state

  constexpr Gathered gathered() const {
    if (parameters != Kept::kWhole) return Gathered::kForEachPass;
    return updating == Kept::kWhole ? Gathered::kNever : Gathered::kAfterUpdate;
  }
  constexpr Reduced reduced() const { return updating == Kept::kWhole ? Reduced::kToAllRanks : Reduced::kToShards; }
};

// A unit's gradient is reduced as soon as its backward pass ends, so the whole gradient of a model never exists unless
// a rank is to keep it: stage 1 costs no more than stage 2. Hybrid sharding spreads gradients and optimizer state over
// all ranks, parameters over the ranks of a group (a node).
inline constexpr ShardingStage kZero0{"zero-0", Kept::kWhole, Kept::kWhole};
inline constexpr ShardingStage kZero1{"zero-1", Kept::kWhole, Kept::kWorldShard};
inline constexpr ShardingStage kZero2{"zero-2", Kept::kWhole, Kept::kWorldShard};
inline constexpr ShardingStage kZero3{"zero-3", Kept::kWorldShard, Kept::kWorldShard};
inline constexpr std::array<ShardingStage, 4> kZeroStages{kZero0, kZero1, kZero2, kZero3};
inline constexpr ShardingStage kHybrid{"hybrid", Kept::kGroupShard, Kept::kWorldShard};

// What is kept on disk ("nvme") instead of in memory.
struct OffloadOptions {
  bool optimizer = false;        // master weights and the optimizer's state
  bool parameters = false;       // what a rank keeps of the parameters, too; needs `optimizer`
  std::filesystem::path folder;  // on a disk with room; nothing is left there
  double ratio = 1;              // share of the elements whose optimizer state is on disk
  int64_t window_elements = int64_t{1} << 20;
  int buffers = 4;                            // windows in memory
  static constexpr int kBuffersOfFrozen = 2;  // they are only read
  // DeepSpeed's rules, by which its configurations are checked and plans are chosen: the lowest stage for states, and
  // that for parameters, for a share of the states, and for groups of ranks.
  static constexpr int kLowestStage = 1;
  static constexpr int kLowestStageOfParameters = 3;
  ScratchFile::Options file = {};
  // Of ranks on GPUs: state in the host's memory, which updates it there (ZeRO-Offload, Ren et al., USENIX ATC 2021).
  bool optimizer_to_host = false;   // master weights and the optimizer's state of `ratio` of the elements
  bool parameters_to_host = false;  // what a rank keeps of their parameters
  bool pins_windows = true;         // what is copied for an update goes by way of page-locked memory
  bool pins_parameters = true;      // parameters lie in page-locked memory
};

// How training state is spread over the ranks. Results do not depend on it.
struct ShardingOptions {
  ShardingStage stage = kZero2;
  int64_t group_size = 1;             // hybrid: ranks of a group; divides the number of ranks
  int64_t persistence_threshold = 0;  // elements: smaller blocks keep whole parameters in any stage
  int64_t most_persistent = std::numeric_limits<int64_t>::max();  // elements of all these blocks together
  bool share_parameters = true;  // ranks that can have memory in common keep one copy of the parameters
  OffloadOptions offload;
};

}  // namespace strake::training
