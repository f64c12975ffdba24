#pragma once

#include <cstdint>

#include "strake/core/cpu_features.h"
#include "strake/kernels/half.h"

// Conversions and sums of flat arrays of `count` elements.
namespace strake::kernels {

// T is BFloat16 or Half.
template <typename T>
void convert(const float* from, T* to, int64_t count, Isa highest = best_isa());  // nearest, ties to even
template <typename T>
void convert(const T* from, float* to, int64_t count, Isa highest = best_isa());

// sum += x. T is float, BFloat16 or Half.
template <typename T>
void accumulate(float* sum, const T* x, int64_t count, Isa highest = best_isa());

}  // namespace strake::kernels
