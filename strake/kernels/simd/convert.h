#pragma once

#include "strake/kernels/convert_rungs.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

template <class S, class To>
void convert_range(const float* from, To* to, int64_t count) {
  for_each_vector<S>(count, [&](int64_t i, auto lanes) { S::store(to + i, S::load(from + i, lanes), lanes); });
}

}  // namespace
}  // namespace strake::kernels
