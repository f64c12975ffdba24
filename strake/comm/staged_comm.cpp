#include "strake/comm/staged_comm.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace strake::comm {

using tensors::ShardLayout;

void StagedComm::reduce_scatter(const Addend& addend, int contributors, const ShardLayout& layout, at::Tensor& shard,
                                Fold fold) {
  const at::Tensor& full = addend.values;
  const int64_t own = layout.size(rank());
  const at::Tensor staging = at::empty({contributors, std::min(kStagingElements, own)}, full.options());
  int64_t longest = 0;
  for (int other = 0; other < size(); ++other) longest = std::max(longest, layout.size(other));
  for (int64_t begin = 0; begin < longest; begin += kStagingElements) {
    exchange_chunk(full, layout, staging, begin);
    const int64_t count = std::min(kStagingElements, own - begin);
    if (count <= 0) continue;
    at::Tensor target = shard.narrow(0, begin, count);
    for (int other = 0; other < contributors; ++other) {
      const at::Tensor piece =
          other == rank() ? full.narrow(0, layout.begin(other) + begin, count) : staging[other].narrow(0, 0, count);
      fold_piece(piece, target, other == 0 ? fold : Fold::kAdd);
    }
  }
}

void StagedComm::all_reduce_by_shards(at::Tensor& values) {
  const ShardLayout layout(values.numel(), size());
  at::Tensor shard = at::empty({layout.size(rank())}, values.options());
  reduce_scatter(values, size(), layout, shard, Fold::kOverwrite);
  values.narrow(0, layout.begin(rank()), layout.size(rank())).copy_(shard);
  all_gather(values, layout);
}

}  // namespace strake::comm
