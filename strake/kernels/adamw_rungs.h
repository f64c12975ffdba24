#pragma once

#include "strake/kernels/adamw.h"

namespace strake::kernels {

// The factors of one step, in fp32.
struct AdamWFactors {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;           // learning_rate / (1 - beta1^step)
  float denominator_factor;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
  float gradient_scale;
};

struct AdamWRung {
  Isa isa;
  // Elements [begin, end), after multiplying them by `shrink`.
  void (*update)(const AdamW&, const AdamWFactors&, float shrink, int64_t begin, int64_t end);
};

namespace reference {
extern const AdamWRung kAdamW;
}  // namespace reference
namespace avx2 {
extern const AdamWRung kAdamW;
}  // namespace avx2
namespace avx512 {
extern const AdamWRung kAdamW;
}  // namespace avx512

}  // namespace strake::kernels
