#pragma once

#include <algorithm>
#include <cstdint>

#include "strake/comm/comm.h"

namespace strake::comm {

// Elements of each contributor's piece that reduce_scatter has in memory at a time: together at most kStagingElements,
// of up to 1024 ranks. One rank's are a quarter of that at most: more than these do not go any faster.
inline constexpr int64_t kStagingElements = int64_t{1} << 22;
constexpr int64_t staging_window(int num_ranks) {
  constexpr int64_t kLeast = 4096;
  return std::clamp(kStagingElements / num_ranks, kLeast, kStagingElements / 4);
}

// Of buffers of fewer elements, ranks do not tell each other first what they touched.
inline constexpr int64_t kLeastSparse = int64_t{1} << 20;

// A communicator whose ranks send each other what is summed: pieces of the others wait in staging memory until they are
// added in the order of ranks. It moves as many bytes as a ring does, and keeps the sum's order.
class StagedComm : public Comm {
 public:
  // Every pair exchanges its pieces in windows, so that the staging memory stays small whatever the buffer. Of large
  // buffers in the host's memory ranks tell each other first what they touched, if they know, and send no more than
  // that.
  void reduce_scatter(const Addend& addend, int contributors, const tensors::ShardLayout& layout, at::Tensor& shard,
                      Fold fold) override;

 protected:
  // By rank: contiguous, of any length; undefined or empty where nothing goes, as for the rank itself.
  using Messages = std::vector<at::Tensor>;
  // Sends sends[r] to each rank r, and receives what r sends into receives[r]. Returns when all have come and gone.
  virtual void exchange(const Messages& sends, const Messages& receives) = 0;

  // The sum as reduce_scatter and all_gather, of any dtype; the shard between them is extra memory.
  void all_reduce_by_shards(at::Tensor& values);

 private:
  // By contributor: what it touched of this rank's shard, and this rank's own entry of all shards.
  std::vector<tensors::TouchedChunks> exchange_touched(const Addend& addend, int contributors,
                                                       const tensors::ShardLayout& layout);
};

}  // namespace strake::comm
