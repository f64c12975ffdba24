#pragma once

#include "strake/kernels/bias_activation.h"
#include "strake/kernels/cuda/device.cuh"

// Activations by exponentials of two and approximate reciprocals, each within 2 units in the last place, so that memory
// and not arithmetic is what their kernels take.
namespace strake::kernels::cuda {

inline constexpr float kInverseRootTwoPi = 0.3989422804F;
inline constexpr float kTwoRootTwoOverPi = 1.5957691216F;
inline constexpr float kCubic = 0.044715F;

__device__ inline float sigmoid(float x) { return reciprocal_approximately(1.0F + exp2_approximately(-kLog2E * x)); }

// P(z <= x), absolute error below 2e-7, and its derivative: simd/math.h.
struct Normal {
  float cdf;
  float density;
};
__device__ inline Normal normal(float x) {
  const float density = exp2_approximately(-0.5F * kLog2E * x * x);
  const float t = reciprocal_approximately(fmaf(fabsf(x), 0.3275911F * 0.70710678F, 1.0F));
  float p = 0.5F * 1.061405429F;
  p = fmaf(p, t, 0.5F * -1.453152027F);
  p = fmaf(p, t, 0.5F * 1.421413741F);
  p = fmaf(p, t, 0.5F * -0.284496736F);
  p = fmaf(p, t, 0.5F * 0.254829592F);
  const float tail = p * t * density;
  return {x < 0 ? tail : 1.0F - tail, density * kInverseRootTwoPi};
}

// (1 + tanh u) / 2 = sigmoid(2 u)
__device__ inline float twice_gelu_tanh_argument(float x) {
  return x * fmaf(x * x, kTwoRootTwoOverPi * kCubic, kTwoRootTwoOverPi);
}

template <Activation kKind>
__device__ float activate(float x) {
  if constexpr (kKind == Activation::kGelu) {
    return x * normal(x).cdf;
  } else if constexpr (kKind == Activation::kGeluTanh) {
    return x * sigmoid(twice_gelu_tanh_argument(x));
  } else if constexpr (kKind == Activation::kRelu) {
    return x < 0 ? 0.0F : x;
  } else if constexpr (kKind == Activation::kSilu) {
    return x * sigmoid(x);
  } else if constexpr (kKind == Activation::kTanh) {
    return tanhf(x);
  } else {
    return x;
  }
}

template <Activation kKind>
__device__ float activation_derivative(float x) {
  if constexpr (kKind == Activation::kGelu) {
    const Normal n = normal(x);
    return fmaf(x, n.density, n.cdf);
  } else if constexpr (kKind == Activation::kGeluTanh) {
    const float s = sigmoid(twice_gelu_tanh_argument(x));
    const float slope = fmaf(x * x, 3.0F * kTwoRootTwoOverPi * kCubic, kTwoRootTwoOverPi);
    return fmaf(x * (s * (1.0F - s)), slope, s);
  } else if constexpr (kKind == Activation::kRelu) {
    return x > 0 ? 1.0F : 0.0F;
  } else if constexpr (kKind == Activation::kSilu) {
    const float s = sigmoid(x);
    return s * fmaf(x, 1.0F - s, 1.0F);
  } else if constexpr (kKind == Activation::kTanh) {
    const float t = tanhf(x);
    return fmaf(-t, t, 1.0F);
  } else {
    return 1.0F;
  }
}

// use.template operator()<kind>(): a kernel of its own for each.
template <typename Use>
int with_activation(Activation kind, const Use& use) {
  switch (kind) {
    case Activation::kGelu:
      return use.template operator()<Activation::kGelu>();
    case Activation::kGeluTanh:
      return use.template operator()<Activation::kGeluTanh>();
    case Activation::kRelu:
      return use.template operator()<Activation::kRelu>();
    case Activation::kSilu:
      return use.template operator()<Activation::kSilu>();
    case Activation::kTanh:
      return use.template operator()<Activation::kTanh>();
    case Activation::kIdentity:
      break;
  }
  return use.template operator()<Activation::kIdentity>();
}

}  // namespace strake::kernels::cuda
