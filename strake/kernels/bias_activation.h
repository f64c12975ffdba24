#pragma once

#include <cstdint>

#include "strake/core/cpu_features.h"
#include "strake/kernels/half.h"

namespace strake::kernels {

enum class Activation {
  kGelu,      // x P(z <= x), exact (erf)
  kGeluTanh,  // tanh approximation: gelu_new, gelu_pytorch_tanh
  kRelu,
  kSilu,
  kTanh,
  kIdentity
};

template <typename T>
struct BiasActivationForward {
  const T* x = nullptr;     // [tokens, columns]
  const T* bias = nullptr;  // [columns], or null: none
  T* y = nullptr;           // [tokens, columns], may be x
  int64_t tokens = 0;
  int64_t columns = 0;
  Activation activation = Activation::kGelu;
};

template <typename T>
struct BiasActivationBackward {
  const T* dy = nullptr;    // [tokens, columns]
  const T* x = nullptr;     // [tokens, columns], as in the forward pass
  const T* bias = nullptr;  // [columns], or null: none
  T* dx = nullptr;          // [tokens, columns], may be dy or x
  float* dbias = nullptr;   // [columns], overwritten with the column sums of dx before rounding; or null
  int64_t tokens = 0;
  int64_t columns = 0;
  Activation activation = Activation::kGelu;
};

// y = activation(x + bias). T is float, BFloat16 or Half. The error of gelu is below 5e-7 absolute or 3e-7 relative; of
// one stored as BFloat16, before that is rounded, below 6e-6 absolute, or 3e-3 relative down to x = -4.8. AVX512-BF16
// stores denormal numbers as 0.
template <typename T>
void bias_activation_forward(const BiasActivationForward<T>& args, Isa highest = best_isa());

// dx = dy activation'(x + bias)
template <typename T>
void bias_activation_backward(const BiasActivationBackward<T>& args, Isa highest = best_isa());

}  // namespace strake::kernels
