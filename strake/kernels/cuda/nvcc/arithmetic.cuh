#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "strake/kernels/half.h"

// What a GPU has instructions for: conversions, which round as from_float() and to_float() do but for the bits of a
// NaN, and approximations.
namespace strake::kernels::cuda {

__device__ inline float wide(float x) { return x; }
__device__ inline float wide(BFloat16 x) { return to_float(x); }
__device__ inline float wide(Half x) { return __half2float(__ushort_as_half(x.bits)); }

template <typename T>
__device__ inline T narrow(float x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  } else if constexpr (std::is_same_v<T, Half>) {
    return {__half_as_ushort(__float2half_rn(x))};
  } else {
    return x;
  }
}

// Within 2 units in the last place; results below 2^-126 are 0.
__device__ inline float exp2_approximately(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Within 1 unit in the last place; of infinity 0.
__device__ inline float reciprocal_approximately(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace strake::kernels::cuda
