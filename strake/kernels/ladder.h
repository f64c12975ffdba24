#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "strake/core/cpu_features.h"

// Every kernel has one table of rungs, best first, that ends in the readable reference. A rung is a struct of function
// pointers with a member `isa`; all of them compute the same thing.
namespace strake::kernels {

template <typename Rung, size_t kCount>
using Ladder = std::array<const Rung*, kCount>;

// Best rung that is not above `highest` and that this machine may run.
template <typename Rung, size_t kCount>
const Rung& pick(const Ladder<Rung, kCount>& ladder, Isa highest) {
  for (const Rung* rung : ladder) {
    if (rung->isa <= highest && usable(rung->isa)) return *rung;
  }
  return *ladder.back();
}

// Levels that this machine may run and for which kernels of any kind have rungs, but for products and attention, which
// have more: what tests and benchmarks loop over.
inline std::vector<Isa> usable_rungs() {
  std::vector<Isa> levels;
  for (const Isa isa : {Isa::kReference, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (usable(isa)) levels.push_back(isa);
  }
  return levels;
}

}  // namespace strake::kernels
