#pragma once

#include "strake/kernels/simd/lanes.h"

// Elementary functions in fp32. NaN goes in and comes out; errors are against the exact function.
namespace strake::kernels {
namespace {

constexpr float kInfinity = __builtin_inff();

// e^x to 2 ulp: x = n ln 2 + r, polynomial of Cephes expf on |r| <= ln 2 / 2. Below -104 the result is 0.
template <class S>
inline typename S::Float exp(typename S::Float x) {
  using Float = typename S::Float;
  x = S::min(S::set(89.0F), S::max(S::set(-104.0F), x));
  const Float n = S::round(x * S::set(1.44269504F));
  const Float r = S::fnma(n, S::set(-2.12194440e-4F), S::fnma(n, S::set(0.693359375F), x));
  Float p = S::set(1.9875691500e-4F);
  p = S::fma(p, r, S::set(1.3981999507e-3F));
  p = S::fma(p, r, S::set(8.3334519073e-3F));
  p = S::fma(p, r, S::set(4.1665795894e-2F));
  p = S::fma(p, r, S::set(1.6666665459e-1F));
  p = S::fma(p, r, S::set(5.0000001201e-1F));
  p = S::fma(p, r * r, r) + S::set(1.0F);
  return S::times_power_of_two(p, n);
}

// Natural logarithm of positive normal x to 2 ulp (Cephes logf); infinity gives NaN.
template <class S>
inline typename S::Float log(typename S::Float x) {
  using Float = typename S::Float;
  const Float one = S::set(1.0F);
  Float e = S::exponent(x);
  Float m = S::mantissa(x);
  const Float root = S::set(1.41421356F);
  e = S::less_select(root, m, e + one, e);
  m = S::less_select(root, m, m * S::set(0.5F), m) - one;
  Float p = S::set(7.0376836292e-2F);
  p = S::fma(p, m, S::set(-1.1514610310e-1F));
  p = S::fma(p, m, S::set(1.1676998740e-1F));
  p = S::fma(p, m, S::set(-1.2420140846e-1F));
  p = S::fma(p, m, S::set(1.4249322787e-1F));
  p = S::fma(p, m, S::set(-1.6668057665e-1F));
  p = S::fma(p, m, S::set(2.0000714765e-1F));
  p = S::fma(p, m, S::set(-2.4999993993e-1F));
  p = S::fma(p, m, S::set(3.3333331174e-1F));
  const Float square = m * m;
  Float y = p * m * square;
  y = S::fma(e, S::set(-2.12194440e-4F), y);
  y = S::fnma(square, S::set(0.5F), y);
  y = S::fma(e, S::set(0.693359375F), m + y);
  return y + (x - x);  // infinity gives NaN; NOLINT(misc-redundant-expression)
}

template <class S>
inline typename S::Float sigmoid(typename S::Float x) {
  return S::set(1.0F) / (S::set(1.0F) + exp<S>(S::zero() - x));
}

// tanh to about 2 ulp: odd polynomial of Cephes tanhf below 0.625, else 1 - 2 / (e^2x + 1).
template <class S>
inline typename S::Float tanh(typename S::Float x) {
  using Float = typename S::Float;
  const Float one = S::set(1.0F);
  const Float square = x * x;
  Float p = S::set(-5.70498872745e-3F);
  p = S::fma(p, square, S::set(2.06390887954e-2F));
  p = S::fma(p, square, S::set(-5.37397155531e-2F));
  p = S::fma(p, square, S::set(1.33314422036e-1F));
  p = S::fma(p, square, S::set(-3.33332819422e-1F));
  const Float near = S::fma(p * square, x, x);
  const Float far = one - S::set(2.0F) / (exp<S>(x + x) + one);
  return S::less_select(S::abs(x), S::set(0.625F), near, far);
}

template <class S>
struct Normal {
  typename S::Float cdf;      // P(z <= x), absolute error below 2e-7
  typename S::Float density;  // e^(-x^2/2), not divided by sqrt(2 pi)
};

// Abramowitz and Stegun 7.1.26 (erfc as e^-z^2 times a polynomial in 1 / (1 + 0.3275911 z), error 1.5e-7). Both tails
// are computed from erfc, so that the left one keeps its relative accuracy.
template <class S>
inline Normal<S> normal(typename S::Float x) {
  using Float = typename S::Float;
  const Float one = S::set(1.0F);
  const Float density = exp<S>(x * x * S::set(-0.5F));
  const Float z = S::min(S::set(1e6F), S::abs(x));  // keeps the reciprocal from seeing infinity
  const Float t = S::reciprocal(S::fma(z, S::set(0.3275911F * 0.70710678F), one));
  Float p = S::set(0.5F * 1.061405429F);
  p = S::fma(p, t, S::set(0.5F * -1.453152027F));
  p = S::fma(p, t, S::set(0.5F * 1.421413741F));
  p = S::fma(p, t, S::set(0.5F * -0.284496736F));
  p = S::fma(p, t, S::set(0.5F * 0.254829592F));
  const Float tail = p * t * density;
  return {S::less_select(x, S::zero(), tail, one - tail), density};
}

}  // namespace
}  // namespace strake::kernels
