#pragma once

#include "strake/kernels/adamw_rungs.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

template <class S>
void adamw_range(const AdamW& args, const AdamWFactors& f, float shrink, int64_t begin, int64_t end) {
  using Float = typename S::Float;
  float* const parameters = args.parameters + begin;
  const float* const gradients = args.gradients + begin;
  float* const exp_avg = args.exp_avg + begin;
  float* const exp_avg_sq = args.exp_avg_sq + begin;
  BFloat16* const rounded = args.rounded == nullptr ? nullptr : args.rounded + begin;
  for_each_vector<S>(end - begin, [&](int64_t i, auto lanes) {
    const Float g = S::load(gradients + i, lanes) * S::set(f.gradient_scale);
    const Float m = S::fma(S::load(exp_avg + i, lanes), S::set(f.beta1), g * S::set(f.one_minus_beta1));
    const Float v = S::fma(S::load(exp_avg_sq + i, lanes), S::set(f.beta2), g * g * S::set(f.one_minus_beta2));
    const Float denominator = S::fma(S::sqrt(v), S::set(f.denominator_factor), S::set(f.epsilon));
    const Float p = S::fnma(S::set(f.step_size), m / denominator, S::load(parameters + i, lanes) * S::set(shrink));
    S::store(parameters + i, p, lanes);
    S::store(exp_avg + i, m, lanes);
    S::store(exp_avg_sq + i, v, lanes);
    if (rounded != nullptr) S::store(rounded + i, p, lanes);
  });
}

}  // namespace
}  // namespace strake::kernels
