#pragma once

#include "strake/kernels/global_norm_rungs.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

template <class S, class T>
double squares_of(const T* x, int64_t count) {
  typename S::Squares even;
  typename S::Squares odd;
  int64_t i = 0;
  for (; i + 2 * S::kLanes <= count; i += 2 * S::kLanes) {
    even.add(S::load(x + i));
    odd.add(S::load(x + i + S::kLanes));
  }
  for_each_vector<S>(count - i, [&](int64_t rest, auto lanes) { even.add(S::load(x + i + rest, lanes)); });
  return even.total() + odd.total();
}

}  // namespace
}  // namespace strake::kernels
