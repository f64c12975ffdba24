#pragma once

#include <type_traits>

#include "strake/kernels/lamb_rungs.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

template <class S>
typename S::Float lamb_direction(typename S::Float p, typename S::Float m, typename S::Float v, const LambFactors& f) {
  return S::fma(p, S::set(f.weight_decay), m / (S::sqrt(v) + S::set(f.epsilon)));
}

// Stores values; returns what is there now.
template <class S, class M, class Lanes>
typename S::Float store_rounded(M* target, typename S::Float values, Lanes lanes) {
  S::store(target, values, lanes);
  if constexpr (std::is_same_v<M, float>) {
    return values;
  } else {
    return S::load(target, lanes);
  }
}

// The update whose norm is taken is the one that will be applied: of the moments as they are stored.
template <class S, class G, class M = float>
LambSums lamb_moments_run(const PassRun& run, const LambFactors& f) {
  using Float = typename S::Float;
  const auto* const parameters = static_cast<const M*>(run.parameters);
  const auto* const gradients = static_cast<const G*>(run.gradients);
  auto* const first = static_cast<M*>(run.first);
  auto* const second = static_cast<M*>(run.second);
  typename S::Squares parameter;
  typename S::Squares update;
  for_each_vector<S>(run.count, [&](int64_t i, auto lanes) {
    const Float g = S::load(gradients + i, lanes) * S::set(run.gradient_scale);
    const Float exp_avg = S::fma(S::load(first + i, lanes), S::set(f.beta1), g * S::set(f.one_minus_beta1));
    const Float exp_avg_sq = S::fma(S::load(second + i, lanes), S::set(f.beta2), g * g * S::set(f.one_minus_beta2));
    const Float p = S::load(parameters + i, lanes);
    const Float m = store_rounded<S>(first + i, exp_avg, lanes);
    const Float v = store_rounded<S>(second + i, exp_avg_sq, lanes);
    parameter.add(p);
    update.add(S::first(lamb_direction<S>(p, m, v, f), lanes));
  });
  return {parameter.total(), update.total()};
}

template <class S, class M>
void lamb_apply_run(const PassRun& run, const LambFactors& f) {
  using Float = typename S::Float;
  auto* const parameters = static_cast<M*>(run.parameters);
  const auto* const first = static_cast<const M*>(run.first);
  const auto* const second = static_cast<const M*>(run.second);
  for_each_vector<S>(run.count, [&](int64_t i, auto lanes) {
    const Float p = S::load(parameters + i, lanes);
    const Float u = lamb_direction<S>(p, S::load(first + i, lanes), S::load(second + i, lanes), f);
    const Float updated = S::fnma(S::set(f.step_size), u, p);
    S::store(parameters + i, updated, lanes);
    if (run.bfloat16 != nullptr) S::store(run.bfloat16 + i, updated, lanes);
    if (run.half != nullptr) S::store(run.half + i, updated, lanes);
  });
}

}  // namespace
}  // namespace strake::kernels
