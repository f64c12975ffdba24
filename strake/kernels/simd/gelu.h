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

// GELU for results that are rounded to 8 bits: x (1/2 + u P(u^2)) with u = x cut to +-4.4, where the exact factor is
// within 6e-6 of 0 or 1. P has degree 8 and the least largest absolute error of the product (minimax, made by linear
// programming), 2.5e-5; fp32 rounding makes that 5.5e-5, or 1.5e-5 relative, in all. NaN stays NaN.
template <class S>
inline typename S::Float gelu_for_bfloat16(typename S::Float x) {
  using Float = typename S::Float;
  const Float factor = S::max(S::set(-4.4F), x);  // not less, or the rounding of 0 would be multiplied by any x
  const Float u = S::min(S::set(4.4F), factor);
  const Float square = u * u;
  Float p = S::set(3.5690849581326844e-11F);
  p = S::fma(p, square, S::set(-3.753745314583057e-9F));
  p = S::fma(p, square, S::set(1.7407353425369365e-7F));
  p = S::fma(p, square, S::set(-4.72464444101206e-6F));
  p = S::fma(p, square, S::set(8.429039735347033e-5F));
  p = S::fma(p, square, S::set(-1.0549742728471756e-3F));
  p = S::fma(p, square, S::set(9.642956778407097e-3F));
  p = S::fma(p, square, S::set(-6.607629358768463e-2F));
  p = S::fma(p, square, S::set(3.98761510848999e-1F));
  return factor * S::fma(u, p, S::set(0.5F));
}

}  // namespace
}  // namespace strake::kernels
