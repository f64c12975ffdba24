#include "strake/training/hybrid_layout.h"

#include <vector>

namespace strake::training {

using tensors::ShardLayout;

ShardLayout hybrid_layout(int64_t numel, int world, int group) {
  const ShardLayout ordered(numel, world);
  const int replicas = world / group;
  std::vector<ShardLayout::Piece> pieces;
  for (int rank = 0; rank < world; ++rank) {
    const int piece = rank % group * replicas + rank / group;
    pieces.push_back({ordered.begin(piece), ordered.end(piece)});
  }
  return ShardLayout(std::move(pieces));
}

ShardLayout group_layout(const ShardLayout& world, int group) {
  std::vector<ShardLayout::Piece> pieces;
  for (int place = 0; place < group; ++place) {
    const int last = world.num_shards() - group + place;
    pieces.push_back({world.begin(place), world.end(last)});
  }
  return ShardLayout(std::move(pieces));
}

ShardLayout replica_layout(const ShardLayout& world, int group, int place) {
  std::vector<ShardLayout::Piece> pieces;
  for (int rank = place; rank < world.num_shards(); rank += group) {
    pieces.push_back({world.begin(rank) - world.begin(place), world.end(rank) - world.begin(place)});
  }
  return ShardLayout(std::move(pieces));
}

}  // namespace strake::training
