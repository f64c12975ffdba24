#pragma once

#include <cmath>

#include "strake/kernels/half.h"

// What nvcc/arithmetic.cuh has as instructions.
namespace strake::kernels::cuda {

template <typename T>
float wide(T x) {
  return to_float(x);
}
template <typename T>
T narrow(float x) {
  return from_float<T>(x);
}
inline float exp2_approximately(float x) { return std::exp2(x); }
inline float reciprocal_approximately(float x) { return 1.0F / x; }

}  // namespace strake::kernels::cuda
