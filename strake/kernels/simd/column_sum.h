#pragma once

#include "strake/kernels/column_sum_rungs.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

// Four tokens at a time, so that the sums travel to and from the first-level cache once for four rows.
template <class S, class T>
void column_sum_range(const ColumnSumArgs<T>& args, int64_t begin, int64_t end, float* sums) {
  using Float = typename S::Float;
  int64_t token = begin;
  for (; token + 4 <= end; token += 4) {
    const T* const x = args.x + token * args.stride;
    for_each_vector<S>(args.columns, [&](int64_t c, auto lanes) {
      const Float first = S::load(x + c, lanes) + S::load(x + args.stride + c, lanes);
      const Float second = S::load(x + 2 * args.stride + c, lanes) + S::load(x + 3 * args.stride + c, lanes);
      S::store(sums + c, S::load(sums + c, lanes) + (first + second), lanes);
    });
  }
  for (; token < end; ++token) {
    const T* const x = args.x + token * args.stride;
    for_each_vector<S>(args.columns, [&](int64_t c, auto lanes) {
      S::store(sums + c, S::load(sums + c, lanes) + S::load(x + c, lanes), lanes);
    });
  }
}

}  // namespace
}  // namespace strake::kernels
