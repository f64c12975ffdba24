#pragma once

#include <cstdint>
#include <span>

#include "strake/core/cpu_features.h"
#include "strake/kernels/bfloat16.h"

// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019), the arithmetic of
// torch.optim.AdamW:
//   p -= learning_rate weight_decay p
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   p -= learning_rate / (1 - beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)
// in one pass over memory, which is what it costs: 28 bytes a parameter.
namespace strake::kernels {

// Elements [begin, end) have this weight decay; elements in no segment have none.
struct WeightDecaySegment {
  int64_t begin = 0;
  int64_t end = 0;
  float weight_decay = 0;
};

struct AdamW {
  float* parameters = nullptr;       // [count]
  const float* gradients = nullptr;  // [count]
  float* exp_avg = nullptr;          // [count]: m
  float* exp_avg_sq = nullptr;       // [count]: v
  BFloat16* rounded = nullptr;       // [count]: also receives the new parameters; or null
  int64_t count = 0;
  double learning_rate = 0;  // of this step, after the schedule
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  int64_t step = 1;                                // 1 for the first update
  float gradient_scale = 1;                        // g = gradient_scale * gradients: clipping and the loss divisor
  std::span<const WeightDecaySegment> decay = {};  // ascending, disjoint
};

// One update of every parameter. kInternal if step < 1 or the segments are out of order.
void adamw(const AdamW& args, Isa highest = best_isa());

}  // namespace strake::kernels
