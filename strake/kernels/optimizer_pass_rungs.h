#pragma once

#include "strake/core/cpu_features.h"
#include "strake/kernels/bfloat16.h"
#include "strake/kernels/half.h"

namespace strake::kernels {

// A run of elements; pointers are to its first. Those that a rung of the CPU gets have one weight decay.
struct PassRun {
  void* parameters;  // this and the next: of the types that the function was picked for
  void* gradients;
  void* first;  // states, of the type that the function was picked for, or null
  void* second;
  void* third;
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
  // By type of the gradient, float, BFloat16, Half, with parameters and states of fp32; then all of BFloat16; then
  // gradients and parameters of Half with states of fp32.
  PassFunction<AdamFactors> adam[5];
  PassFunction<AdagradFactors> adagrad[4];
  PassFunction<LionFactors> lion[4];
  PassFunction<SgdFactors> sgd[4];
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
