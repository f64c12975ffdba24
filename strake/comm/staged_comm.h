#pragma once

#include "strake/comm/comm.h"

namespace strake::comm {

// A communicator whose ranks have no memory in common: pieces of the others are sent, and wait in staging memory until
// they are added in the order of ranks. It moves as many bytes as a ring does, and keeps the sum's order.
class StagedComm : public Comm {
 public:
  // Every pair exchanges its pieces in chunks, so that the staging memory stays small whatever the buffer.
  void reduce_scatter(const Addend& addend, int contributors, const tensors::ShardLayout& layout, at::Tensor& shard,
                      Fold fold) override;

 protected:
  // Contributors send elements [begin, begin + kStagingElements) of every other rank's shard of `full` to it; everybody
  // receives its own into staging[other], for each contributor but itself. Returns when all have come and gone.
  virtual void exchange_chunk(const at::Tensor& full, const tensors::ShardLayout& layout, const at::Tensor& staging,
                              int64_t begin) = 0;

  // The sum as reduce_scatter and all_gather; the shard between them is extra memory.
  void all_reduce_by_shards(at::Tensor& values);
};

}  // namespace strake::comm
