#pragma once

#include "strake/kernels/lamb.h"
#include "strake/kernels/optimizer_pass_rungs.h"

namespace strake::kernels {

// The factors of one step and one tensor, in fp32.
struct LambFactors {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float epsilon;
  float weight_decay;
  float step_size;  // with the tensor's coefficient
};

struct LambRung {
  Isa isa;
  LambSums (*moments[4])(const PassRun&, const LambFactors&);  // as in OptimizerPassRung
  // By type of parameters and states: float, BFloat16. Does not touch the gradient.
  void (*apply[2])(const PassRun&, const LambFactors&);
};

namespace reference {
extern const LambRung kLamb;
}  // namespace reference
namespace avx2 {
extern const LambRung kLamb;
}  // namespace avx2
namespace avx512 {
extern const LambRung kLamb;
}  // namespace avx512

}  // namespace strake::kernels
