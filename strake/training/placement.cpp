#include "strake/training/placement.h"

#include "strake/core/error.h"
#include "strake/training/hybrid_layout.h"

namespace strake::training {
namespace {

using tensors::ShardLayout;

void check(const PlacementRequest& request) {
  const ShardingOptions& sharding = request.sharding;
  if (sharding.stage.parameters != Kept::kGroupShard) return;
  require(sharding.group_size > 0 && request.num_ranks % sharding.group_size == 0, ErrorKind::kUsage,
          "hybrid sharding: {} ranks cannot be split into groups of {}", request.num_ranks, sharding.group_size);
  require(!sharding.offload.parameters, ErrorKind::kConfig,
          "parameters that are spread over groups of ranks cannot be on disk yet");
}

BlockPlacement place(const PlacementRequest& request, int64_t numel, bool is_on_disk) {
  const ShardingOptions& sharding = request.sharding;
  const ShardingStage& stage = sharding.stage;
  const bool is_hybrid = stage.parameters == Kept::kGroupShard;
  const auto group = static_cast<int>(is_hybrid ? sharding.group_size : request.num_ranks);
  const bool updates_all = stage.optimizer == Kept::kWhole;
  BlockPlacement block{.layout = is_hybrid ? hybrid_layout(numel, request.num_ranks, group)
                                           : ShardLayout(numel, request.num_ranks)};
  block.begin = updates_all ? 0 : block.layout.begin(request.rank);
  block.count = updates_all ? numel : block.layout.size(request.rank);
  block.is_on_disk = is_on_disk;
  const bool is_small = numel < sharding.persistence_threshold;
  block.keeps_parameters = !is_on_disk || !sharding.offload.parameters || is_small;
  block.is_shared = sharding.share_between_threads && request.is_one_process && !updates_all && block.keeps_parameters;
  block.is_kept_whole =
      block.is_shared || is_small || (stage.gathered != Gathered::kForEachPass && block.keeps_parameters);
  block.kept_count = numel;
  if (!block.is_kept_whole) {
    const ShardLayout pieces = is_hybrid ? group_layout(block.layout, group) : block.layout;
    block.kept_begin = pieces.begin(request.rank % group);
    block.kept_count = block.keeps_parameters ? pieces.size(request.rank % group) : 0;
  }
  return block;
}

}  // namespace

std::vector<BlockPlacement> place_blocks(const PlacementRequest& request) {
  check(request);
  const OffloadOptions& offload = request.sharding.offload;
  int64_t total = 0;
  for (const auto& block : request.model.blocks()) total += block->layout().numel();
  std::vector<BlockPlacement> placements;
  int64_t before = 0;
  for (const auto& block : request.model.blocks()) {
    const int64_t numel = block->layout().numel();
    const bool on_disk = offload.optimizer && static_cast<double>(before) < offload.ratio * static_cast<double>(total);
    placements.push_back(place(request, numel, on_disk));
    before += numel;
  }
  return placements;
}

}  // namespace strake::training
