#pragma once

#include "strake/comm/comm.h"

namespace strake::comm {

// A communicator whose ranks have no memory in common: pieces of the others are sent, and wait in staging memory until
// they are added in the order of ranks. It moves as many bytes as a ring does, and keeps the sum's order.
class StagedComm : public Comm {
 public:
  // Every pair exchanges its pieces in windows, so that the staging memory stays small whatever the buffer. Of large
  // buffers in the host's memory ranks tell each other first what they touched, and send no more than that.
  void reduce_scatter(const Addend& addend, int contributors, const tensors::ShardLayout& layout, at::Tensor& shard,
                      Fold fold) override;

 protected:
  // By rank: contiguous, of any length; undefined or empty where nothing goes, as for the rank itself.
  using Messages = std::vector<at::Tensor>;
  // Sends sends[r] to each rank r, and receives what r sends into receives[r]. Returns when all have come and gone.
  virtual void exchange(const Messages& sends, const Messages& receives) = 0;

  // The sum as reduce_scatter and all_gather; the shard between them is extra memory.
  void all_reduce_by_shards(at::Tensor& values);

 private:
  // By contributor: what it touched of this rank's shard, and this rank's own entry of all shards.
  std::vector<tensors::TouchedChunks> exchange_touched(const Addend& addend, int contributors,
                                                       const tensors::ShardLayout& layout);
};

}  // namespace strake::comm
