#pragma once

#include "strake/kernels/bias_activation.h"
#include "strake/kernels/cuda/device.cuh"

namespace strake::kernels::cuda {

inline constexpr float kRootTwoOverPi = 0.7978845608F;
inline constexpr float kCubic = 0.044715F;
inline constexpr float kRootHalf = 0.7071067812F;
inline constexpr float kInverseRootTwoPi = 0.3989422804F;

__device__ inline float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }
__device__ inline float normal_cdf(float x) { return 0.5F * erfcf(-x * kRootHalf); }
__device__ inline float gelu_tanh_argument(float x) { return kRootTwoOverPi * (x + kCubic * x * x * x); }

__device__ inline float activate(Activation kind, float x) {
  switch (kind) {
    case Activation::kGelu:
      return x * normal_cdf(x);
    case Activation::kGeluTanh:
      return 0.5F * x * (1.0F + tanhf(gelu_tanh_argument(x)));
    case Activation::kRelu:
      return x < 0 ? 0.0F : x;
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kTanh:
      return tanhf(x);
    case Activation::kIdentity:
      return x;
  }
  return x;
}

__device__ inline float activation_derivative(Activation kind, float x) {
  switch (kind) {
    case Activation::kGelu:
      return normal_cdf(x) + x * kInverseRootTwoPi * expf(-0.5F * x * x);
    case Activation::kGeluTanh: {
      const float t = tanhf(gelu_tanh_argument(x));
      return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * kRootTwoOverPi * (1.0F + 3.0F * kCubic * x * x);
    }
    case Activation::kRelu:
      return x > 0 ? 1.0F : 0.0F;
    case Activation::kSilu: {
      const float s = sigmoid(x);
      return s * (1.0F + x * (1.0F - s));
    }
    case Activation::kTanh: {
      const float t = tanhf(x);
      return 1.0F - t * t;
    }
    case Activation::kIdentity:
      return 1.0F;
  }
  return 1.0F;
}

template <typename T>
__device__ float biased(const T* x, const T* bias, int64_t row, int64_t c) {
  return to_float(x[row + c]) + (bias == nullptr ? 0.0F : to_float(bias[c]));
}

}  // namespace strake::kernels::cuda
