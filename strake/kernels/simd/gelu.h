#pragma once

#include "strake/kernels/simd/gelu_table.h"

// GELU, x P(z <= x). NaN goes in and comes out.
namespace strake::kernels {
namespace {

// max(x, 0) less the tail |x| P(z > |x|), which is read from a table of polynomials: nothing to divide, no exponential.
// Absolute error below 3e-7, relative to 3e-7 where |x| < 0.2; below -5.44 the result is 0.
template <class S>
inline typename S::Float gelu(typename S::Float x) {
  using Float = typename S::Float;
  const Float scale = S::set(8.0F / 3.0F);                                 // pieces of width 3/8
  const Float distance = S::min(S::set(15.0F * 0.375F), S::abs(x));        // from there on: piece 15
  const Float shifted = S::fma(distance, scale, S::set(12582912.0F));      // 1.5 2^23: rounds to the nearest piece,
  const Float t = S::fms(distance, scale, shifted - S::set(12582912.0F));  // which is in the lowest bits then
  Float tail = S::pick(kGeluTail[5], shifted);
  tail = S::fma(tail, t, S::pick(kGeluTail[4], shifted));
  tail = S::fma(tail, t, S::pick(kGeluTail[3], shifted));
  tail = S::fma(tail, t, S::pick(kGeluTail[2], shifted));
  tail = S::fma(tail, t, S::pick(kGeluTail[1], shifted));
  tail = S::fma(tail, t, S::pick(kGeluTail[0], shifted));
  return S::max(S::zero(), x) - tail;
}

// GELU for results that are rounded to 8 bits: the same with shorter polynomials, in |x| itself. Absolute error below
// 6e-6, relative to 3e-3 down to x = -4.8; below -4.83 the result is 0. Beside tiles, floating-point operations have
// one port and picking from tables has another.
template <class S>
inline typename S::Float gelu_for_bfloat16(typename S::Float x) {
  using Float = typename S::Float;
  const Float distance = S::min(S::set(15.0F / 3.0F), S::abs(x));
  const Float shifted = S::fma(distance, S::set(3.0F), S::set(12582912.0F));
  Float tail = S::pick(kGeluTailForBFloat16[3], shifted);
  tail = S::fma(tail, distance, S::pick(kGeluTailForBFloat16[2], shifted));
  tail = S::fma(tail, distance, S::pick(kGeluTailForBFloat16[1], shifted));
  tail = S::fma(tail, distance, S::pick(kGeluTailForBFloat16[0], shifted));
  return S::max(S::zero(), x) - tail;
}

}  // namespace
}  // namespace strake::kernels
