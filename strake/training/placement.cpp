#include "strake/training/placement.h"

#include <array>

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
}

// What depends on the units before it.
struct Budgets {
  bool is_offloaded;   // its optimizer state, to where all of it goes
  bool is_persistent;  // small enough to keep its parameters whole in any stage
};

UnitPlacement place(const PlacementRequest& request, const Unit& unit, const Budgets& budgets) {
  const int64_t numel = unit.layout.numel();
  const ShardingOptions& sharding = request.sharding;
  const ShardingStage& stage = sharding.stage;
  const bool is_hybrid = stage.parameters == Kept::kGroupShard;
  const auto group = static_cast<int>(is_hybrid ? sharding.group_size : request.num_ranks);
  UnitPlacement placement{.layout = is_hybrid ? hybrid_layout(numel, request.num_ranks, group)
                                              : ShardLayout(numel, request.num_ranks)};
  placement.is_frozen = unit.is_frozen();
  placement.owns_whole = stage.updating == Kept::kWhole && !placement.is_frozen;
  placement.begin = placement.owns_whole ? 0 : placement.layout.begin(request.rank);
  placement.count = placement.owns_whole ? numel : placement.layout.size(request.rank);
  placement.is_on_disk = sharding.offload.optimizer && budgets.is_offloaded;
  placement.has_states_on_host = sharding.offload.optimizer_to_host && budgets.is_offloaded;
  placement.keeps_parameters = !placement.is_on_disk || !sharding.offload.parameters || budgets.is_persistent;
  placement.is_shared =
      sharding.share_parameters && request.shares_memory && !placement.owns_whole && placement.keeps_parameters;
  placement.is_kept_whole = placement.is_shared || budgets.is_persistent ||
                            (stage.gathered() != Gathered::kForEachPass && placement.keeps_parameters);
  placement.is_kept_on_host = sharding.offload.parameters_to_host && budgets.is_offloaded &&
                              placement.keeps_parameters && !placement.is_kept_whole;
  placement.kept_count = numel;
  if (!placement.is_kept_whole) {
    const ShardLayout pieces = is_hybrid ? group_layout(placement.layout, group) : placement.layout;
    placement.kept_begin = pieces.begin(request.rank % group);
    placement.kept_count = pieces.size(request.rank % group);
  }
  return placement;
}

}  // namespace

std::vector<UnitPlacement> place_units(const PlacementRequest& request) {
  check(request);
  const OffloadOptions& offload = request.sharding.offload;
  // The share that is offloaded is one of the trained and one of the frozen elements.
  std::array<int64_t, 2> total{};
  for (const Unit& unit : request.units) total[unit.is_frozen() ? 1 : 0] += unit.layout.numel();
  std::array<int64_t, 2> before{};
  int64_t persistent = 0;
  std::vector<UnitPlacement> placements;
  for (const Unit& unit : request.units) {
    const size_t kind = unit.is_frozen() ? 1 : 0;
    const double limit = offload.ratio * static_cast<double>(total[kind]);
    const int64_t numel = unit.layout.numel();
    const bool is_persistent =
        numel < request.sharding.persistence_threshold && numel <= request.sharding.most_persistent - persistent;
    placements.push_back(place(
        request, unit, {.is_offloaded = static_cast<double>(before[kind]) < limit, .is_persistent = is_persistent}));
    before[kind] += numel;
    if (is_persistent) persistent += numel;
  }
  return placements;
}

}  // namespace strake::training
