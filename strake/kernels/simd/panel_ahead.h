#pragma once

#include <cstdint>

#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

// What the product of one tile asks for meanwhile: a unit of the panel, every `every` units; 0: nothing.
template <typename T>
struct Ahead {
  const T* next;
  int64_t every;
};

// A product of few rows waits for B more than it multiplies. While the tiles of a panel are multiplied, the panel
// behind it is asked for, a part by each of the first tiles: one tile alone would ask faster than memory answers.
template <typename T>
class PanelAhead {
 public:
  // `next`: null, or a panel of `units` units of `unit` numbers; `tiles` are multiplied meanwhile.
  PanelAhead(const T* next, int64_t units, int64_t unit, int64_t tiles)
      : next_(next), askers_(next == nullptr ? 0 : smaller(kAskers, tiles)) {
    if (askers_ > 0) of_tile_ = units / askers_ * unit;
  }

  Ahead<T> for_next_tile() {
    if (asked_ == askers_) return {nullptr, 0};
    return {next_ + asked_++ * of_tile_, askers_};
  }

 private:
  static constexpr int64_t kAskers = 4;
  const T* next_;
  int64_t askers_;
  int64_t of_tile_ = 0;
  int64_t asked_ = 0;
};

}  // namespace
}  // namespace strake::kernels
