#pragma once

#include <vector>

#include "strake/core/cpu_features.h"
#include "strake/kernels/flat_window.h"
#include "strake/kernels/global_norm.h"

// LAMB (You et al., "Large batch optimization for deep learning", ICLR 2020), the arithmetic of DeepSpeed's FusedLamb.
// For every tensor, with p, d, r, t and g as in optimizer_pass.h:
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  u = m / (sqrt(v) + epsilon) + d p
//   p -= r sqrt(1 - beta2^t) / (1 - beta1^t) c u,  c = |p| / |u| within [min_coefficient, max_coefficient]
// with c = 1 where a norm is 0, and r alone without bias correction.
//
// Norms are of whole tensors, so an update takes two passes over memory with an exchange between them:
//   1. lamb_moments on every window: m, v, and sums of squares by tensor and chunk of the flat buffer;
//   2. add up the sums of all ranks (exact where each sum is taken by one rank and is zero on the others), then
//      lamb_coefficients;
//   3. lamb_apply on every window.
// Given one instruction set, results have the same bits for any windows and ranks; sums of different instruction sets
// round differently.
namespace strake::kernels {

struct Lamb {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool bias_correction = true;
  double max_coefficient = 10;
  double min_coefficient = 0.01;
};

// Sums of squares, in double.
struct LambSums {
  double parameter = 0;
  double update = 0;
};

// Number of LambSums of a flat buffer with these tensors: for every tensor one for each chunk [c, c + 1) *
// kSquaresChunk of the buffer that it lies in, in order.
int64_t num_lamb_sums(std::span<const TensorSegment> tensors);

// New m (states[0]) and v (states[1]). Of `sums`, those of the window's chunks are overwritten. A window begins at a
// multiple of kSquaresChunk, and ends at one or after the last tensor (kInternal).
void lamb_moments(const FlatWindow& window, const UpdateStep& step, const Lamb& rule, std::span<LambSums> sums,
                  Isa highest = best_isa());

// c for every tensor, from the sums of the whole buffer.
std::vector<double> lamb_coefficients(std::span<const TensorSegment> tensors, std::span<const LambSums> sums,
                                      const Lamb& rule);

// New parameters. Elements in no tensor are left as they are. The gradient is not read, only zeroed if so asked.
void lamb_apply(const FlatWindow& window, const UpdateStep& step, const Lamb& rule,
                std::span<const double> coefficients, Isa highest = best_isa());

}  // namespace strake::kernels
