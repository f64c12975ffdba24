#pragma once

#include <cstdint>

#include "strake/core/cpu_features.h"
#include "strake/kernels/dropout.h"
#include "strake/kernels/half.h"

// The end of a transformer sublayer in one pass over memory:
//   sum = dropout(x) + residual,   y = (sum - mean) rstd gamma + beta,   rstd = 1 / sqrt(variance + eps)
// per token; pre-norm networks use `sum` as well as y. Mean and variance are those of `sum` as stored, so that the
// backward pass sees the same numbers. Processors with AVX512-BF16 store denormal bf16 numbers as 0.
namespace strake::kernels {

template <typename T>
struct ResidualLayerNormForward {
  const T* x = nullptr;         // [tokens, columns]
  const T* residual = nullptr;  // [tokens, columns], or null: none
  const T* gamma = nullptr;     // [columns]
  const T* beta = nullptr;      // [columns]
  T* sum = nullptr;             // [tokens, columns], may be x or residual; null: not wanted
  T* y = nullptr;               // [tokens, columns], may be none of the others
  float* mean = nullptr;        // [tokens]
  float* rstd = nullptr;        // [tokens]
  int64_t tokens = 0;
  int64_t columns = 0;
  int64_t stride = columns;  // of the rows of x, residual, sum and y
  float eps = 1e-5F;
  Dropout dropout = {};
  TokenIndex index = {};
};

template <typename T>
struct ResidualLayerNormBackward {
  const T* dy = nullptr;   // [tokens, columns]
  const T* sum = nullptr;  // from the forward pass, like mean and rstd
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const T* gamma = nullptr;
  const T* dsum_in = nullptr;  // [tokens, columns]: the gradient of `sum` where it is used a second time, or null
  T* dsum = nullptr;           // [tokens, columns]: gradient of the residual; may be dy or dsum_in
  T* dx = nullptr;             // [tokens, columns]: gradient of x; may be dsum if dropout is off
  float* dgamma = nullptr;     // [columns], overwritten
  float* dbeta = nullptr;      // [columns], overwritten
  int64_t tokens = 0;
  int64_t columns = 0;
  Dropout dropout = {};
  TokenIndex index = {};
};

// T is float, BFloat16 or Half. dgamma and dbeta are summed in a fixed order whatever the number of threads.
template <typename T>
void residual_layer_norm_forward(const ResidualLayerNormForward<T>& args, Isa highest = best_isa());

template <typename T>
void residual_layer_norm_backward(const ResidualLayerNormBackward<T>& args, Isa highest = best_isa());

}  // namespace strake::kernels
