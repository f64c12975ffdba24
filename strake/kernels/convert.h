#pragma once

#include <cstdint>

#include "strake/core/cpu_features.h"
#include "strake/kernels/half.h"

namespace strake::kernels {

// A flat array of `count` elements, each rounded to nearest, ties to even. T is BFloat16 or Half.
template <typename T>
void convert(const float* from, T* to, int64_t count, Isa highest = best_isa());

}  // namespace strake::kernels
