#pragma once

#include "strake/kernels/lamb_rungs.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

template <class S>
typename S::Float lamb_direction(typename S::Float p, typename S::Float m, typename S::Float v, const LambFactors& f) {
  return S::fma(p, S::set(f.weight_decay), m / (S::sqrt(v) + S::set(f.epsilon)));
}

template <class S, class G>
LambRunSums lamb_moments_run(const PassRun& run, const LambFactors& f) {
  using Float = typename S::Float;
  const auto* const gradients = static_cast<const G*>(run.gradients);
  typename S::Squares parameter;
  typename S::Squares update;
  for_each_vector<S>(run.count, [&](int64_t i, auto lanes) {
    const Float g = S::load(gradients + i, lanes) * S::set(run.gradient_scale);
    const Float m = S::fma(S::load(run.first + i, lanes), S::set(f.beta1), g * S::set(f.one_minus_beta1));
    const Float v = S::fma(S::load(run.second + i, lanes), S::set(f.beta2), g * g * S::set(f.one_minus_beta2));
    const Float p = S::load(run.parameters + i, lanes);
    S::store(run.first + i, m, lanes);
    S::store(run.second + i, v, lanes);
    parameter.add(p);
    update.add(S::first(lamb_direction<S>(p, m, v, f), lanes));
  });
  return {parameter.total(), update.total()};
}

template <class S>
void lamb_apply_run(const PassRun& run, const LambFactors& f) {
  using Float = typename S::Float;
  for_each_vector<S>(run.count, [&](int64_t i, auto lanes) {
    const Float p = S::load(run.parameters + i, lanes);
    const Float u = lamb_direction<S>(p, S::load(run.first + i, lanes), S::load(run.second + i, lanes), f);
    const Float updated = S::fnma(S::set(f.step_size), u, p);
    S::store(run.parameters + i, updated, lanes);
    if (run.bfloat16 != nullptr) S::store(run.bfloat16 + i, updated, lanes);
    if (run.half != nullptr) S::store(run.half + i, updated, lanes);
  });
}

}  // namespace
}  // namespace strake::kernels
