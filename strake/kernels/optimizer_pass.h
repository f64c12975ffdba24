#pragma once

#include "strake/core/cpu_features.h"
#include "strake/kernels/flat_window.h"

// Optimizers whose update of an element depends on nothing but that element, in one pass over memory, which is what
// they cost. Every rung gives the same bits: products and sums are fused at the same places, and square roots and
// divisions are exact. Below, p is a parameter, d its weight decay, r the learning rate, t the step, g the scaled
// gradient. All throw kInternal for a step below 1, a missing buffer or segments out of order.
namespace strake::kernels {

enum class WeightDecay {
  kDecoupled,  // p shrinks by r d p
  kInGradient  // g grows by d p (L2 regularization)
};

// torch.optim.AdamW (decoupled; Loshchilov and Hutter, ICLR 2019) and torch.optim.Adam (in the gradient):
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   p -= r / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
// Without bias correction both corrections are 1. With AMSGrad (Reddi et al., ICLR 2018) the largest v so far takes the
// place of v in the second line. States: m, v, with AMSGrad the largest v.
struct Adam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool bias_correction = true;
  WeightDecay weight_decay = WeightDecay::kDecoupled;
  bool amsgrad = false;
};
void adam(const FlatWindow& window, const UpdateStep& step, const Adam& rule, Isa highest = best_isa());

// torch.optim.Adagrad (Duchi et al., JMLR 2011), weight decay in the gradient:
//   s += g^2,  p -= r / (1 + (t - 1) lr_decay) g / (sqrt(s) + epsilon)
// State: s.
struct Adagrad {
  double epsilon = 1e-10;
  double lr_decay = 0;
};
void adagrad(const FlatWindow& window, const UpdateStep& step, const Adagrad& rule, Isa highest = best_isa());

// Lion (Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023), decoupled weight decay:
//   p = (1 - r d) p - r sign(beta1 m + (1 - beta1) g),  m = beta2 m + (1 - beta2) g
// with sign(0) = 0 as in the paper, so that parameters without gradients stay (DeepSpeed's kernels move them).
// State: m.
struct Lion {
  double beta1 = 0.9;
  double beta2 = 0.99;
};
void lion(const FlatWindow& window, const UpdateStep& step, const Lion& rule, Isa highest = best_isa());

// torch.optim.SGD, weight decay in the gradient:
//   b = momentum b + (1 - dampening) g (at the first step b = g),  p -= r b, or r (g + momentum b) with Nesterov
// State: b, none if the momentum is 0.
struct Sgd {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
};
void sgd(const FlatWindow& window, const UpdateStep& step, const Sgd& rule, Isa highest = best_isa());

}  // namespace strake::kernels
