#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "strake/kernels/thread_part.h"

namespace strake::kernels {

// The rows of a grid's parts, cut so that threads that are slower than others (cores of another kind, or that somebody
// else uses, too) are not waited for: each takes of its own part, whose rows it may have in its caches, half of what is
// left at a time, and then what is left of the others'. How they are cut does not depend on who takes them.
class RowShares {
 public:
  struct Share {
    int part;
    ThreadGrid::Range rows;  // in tiles
  };

  // `fewest` tiles of rows at a time, or the last; 0, or of one part: a part is taken as a whole.
  RowShares(const ThreadGrid& grid, int64_t fewest) : next_(static_cast<size_t>(grid.parts())) {
    for (int part = 0; part < grid.parts(); ++part) {
      next_[static_cast<size_t>(part)] = shares_.size();
      auto [at, end] = grid.rows_of(part);
      while (at < end) {
        const int64_t size =
            fewest == 0 || grid.parts() == 1 ? end - at : std::min(end - at, std::max(fewest, (end - at) / 2));
        shares_.push_back({part, {at, at + size}});
        at += size;
      }
      ends_.push_back(shares_.size());
    }
  }

  const std::vector<Share>& all() const { return shares_; }

  // Calls use(share) for all that the thread of part `own` takes, until none is left. At the same time on all threads.
  template <typename Use>
  void take(int64_t own, const Use& use) {
    for (size_t i = 0; i < ends_.size(); ++i) {
      const size_t part = (static_cast<size_t>(own) + i) % ends_.size();
      while (true) {
        const size_t share = next_[part].fetch_add(1, std::memory_order_relaxed);
        if (share >= ends_[part]) break;
        use(shares_[share]);
      }
    }
  }

 private:
  std::vector<Share> shares_;              // by part
  std::vector<size_t> ends_;               // of a part's shares
  std::vector<std::atomic<size_t>> next_;  // of a part's shares
};

}  // namespace strake::kernels
