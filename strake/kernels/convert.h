#pragma once

#include <cstdint>

#include "strake/core/cpu_features.h"
#include "strake/kernels/bfloat16.h"

// Conversions and sums of flat arrays of `count` elements.
namespace strake::kernels {

void convert(const float* from, BFloat16* to, int64_t count, Isa highest = best_isa());  // nearest, ties to even
void convert(const BFloat16* from, float* to, int64_t count, Isa highest = best_isa());

// sum += x. T is float or BFloat16.
template <typename T>
void accumulate(float* sum, const T* x, int64_t count, Isa highest = best_isa());

}  // namespace strake::kernels
