#pragma once

#include <cstddef>
#include <vector>

#include "strake/training/units.h"

namespace strake::training {

// Which units the passes over blocks need, from prefetch() to release(): a block's own, and those that the parameters
// tied to it are in, so that a unit may be needed by several blocks at once. What carries this out (ShardedParameters)
// and what counts its memory (PlannedParameters) and its time (step_time.cpp) ask here, so that they are of one mind.
class UnitUses {
 public:
  // Both outlive the object.
  UnitUses(const models::Model& model, const Units& units)
      : model_(model), units_(units), users_(units.size()), requested_(model.blocks().size()) {}

  size_t num_blocks() const { return requested_.size(); }

  template <typename Use>
  void for_each_needed(size_t block, const Use& use) const {
    for (const size_t u : units_.of_block(block)) use(u);
    for (const models::TiedParameter& tied : model_.blocks()[block]->tied()) {
      use(units_.place(tied.block, tied.parameter).unit);
    }
  }

  // Calls arrive(u) for what nobody has needed until now. Of a block that has been asked for, or behind the last one,
  // there is nothing.
  template <typename Arrive>
  void prefetch(size_t block, const Arrive& arrive) {
    if (block >= num_blocks() || requested_[block] != 0) return;
    requested_[block] = 1;
    for_each_needed(block, [&](size_t u) {
      if (users_[u]++ == 0) arrive(u);
    });
  }
  // Calls leave(u) for what nobody needs any more.
  template <typename Leave>
  void release(size_t block, const Leave& leave) {
    requested_[block] = 0;
    for_each_needed(block, [&](size_t u) {
      if (--users_[u] == 0) leave(u);
    });
  }

 private:
  const models::Model& model_;
  const Units& units_;
  std::vector<int> users_;       // by unit: blocks that need it
  std::vector<char> requested_;  // by block
};

}  // namespace strake::training
