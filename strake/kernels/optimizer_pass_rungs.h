#pragma once

#include "strake/core/cpu_features.h"
#include "strake/kernels/bfloat16.h"
#include "strake/kernels/half.h"

namespace strake::kernels {

// A run of elements with one weight decay; pointers are to its first element.
struct PassRun {
  float* parameters;
  void* gradients;  // of the type that the function was picked for
  float* first;     // states, or null
  float* second;
  BFloat16* bfloat16;  // rounded copies, or null
  Half* half;
  int64_t count;
  float gradient_scale;
  bool zeroes_gradients;
};

// The factors of one step and one weight decay, in fp32.
struct AdamFactors {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;           // learning_rate / (1 - beta1^step)
  float denominator_factor;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
  float shrink;          // 1 - learning_rate * decoupled weight decay
  float gradient_decay;  // weight decay in the gradient
};

struct AdagradFactors {
  float step_size;
  float epsilon;
  float gradient_decay;
};

struct LionFactors {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;
  float shrink;
};

struct SgdFactors {
  float momentum;
  float share;  // of the gradient that enters the buffer
  float step_size;
  float gradient_decay;
  bool nesterov;
};

template <class Factors>
using PassFunction = void (*)(const PassRun&, const Factors&);

struct OptimizerPassRung {
  Isa isa;
  PassFunction<AdamFactors> adam[3];  // by type of the gradient: float, BFloat16, Half
  PassFunction<AdagradFactors> adagrad[3];
  PassFunction<LionFactors> lion[3];
  PassFunction<SgdFactors> sgd[3];
};

namespace reference {
extern const OptimizerPassRung kOptimizerPass;
}  // namespace reference
namespace avx2 {
extern const OptimizerPassRung kOptimizerPass;
}  // namespace avx2
namespace avx512 {
extern const OptimizerPassRung kOptimizerPass;
}  // namespace avx512

}  // namespace strake::kernels
