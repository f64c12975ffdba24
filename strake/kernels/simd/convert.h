#pragma once

#include "strake/kernels/convert_rungs.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

template <class S, class From, class To>
void convert_range(const From* from, To* to, int64_t count) {
  for_each_vector<S>(count, [&](int64_t i, auto lanes) { S::store(to + i, S::load(from + i, lanes), lanes); });
}

template <class S, class T>
void accumulate_range(float* sum, const T* x, int64_t count) {
  for_each_vector<S>(
      count, [&](int64_t i, auto lanes) { S::store(sum + i, S::load(sum + i, lanes) + S::load(x + i, lanes), lanes); });
}

}  // namespace
}  // namespace strake::kernels
