#pragma once

#include <cstdint>

#include "strake/core/cpu_features.h"
#include "strake/kernels/half.h"

// Softmax cross entropy of one target class per token, with its gradient by the logits x:
//   nll = log(sum over c of exp(x_c)) - x_target,   gradient_c = scale (exp(x_c) / sum - [c = target])
// With label smoothing e (Szegedy et al. 2016) the target is a distribution, which has 1 - e there and e / classes
// everywhere:
//   nll = log(sum) - (1 - e) x_target - e mean(x)
//   gradient_c = scale (exp(x_c) / sum - (1 - e) [c = target] - e / classes)
// One thread computes a token from begin to end, so results do not depend on the number of threads.
namespace strake::kernels {

template <typename T>
struct CrossEntropyArgs {
  const T* logits = nullptr;         // [tokens, classes]
  const int32_t* targets = nullptr;  // [tokens]
  float* nll = nullptr;              // [tokens]
  T* gradient = nullptr;             // [tokens, classes], may be logits; or null: not wanted
  float scale = 1;                   // of the gradient
  float smoothing = 0;               // in [0, 1]
  int64_t tokens = 0;
  int64_t classes = 0;
  int64_t stride = classes;  // of the rows of logits and gradient; what lies between rows may be overwritten
  const int32_t* host_targets = nullptr;  // GPUs only: the targets once more, in memory of the host, or null (HostIds)
};

// T is float, BFloat16 or Half; arithmetic is fp32. A logit that is NaN or +infinity makes its token's numbers NaN.
// Error (kData) for a target outside [0, classes).
template <typename T>
void cross_entropy(const CrossEntropyArgs<T>& args, Isa highest = best_isa());

}  // namespace strake::kernels
