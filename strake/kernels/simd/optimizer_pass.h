#pragma once

#include "strake/kernels/optimizer_pass_rungs.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

// Elements whose gradient and states(i, lanes) have no bit set, if the rule, where it `is_possible`, only multiplies
// their parameters by `shrink`: most of a table of embeddings, while fine-tuning.
template <class States>
struct AtRest {
  bool is_possible;
  float shrink;
  States states;
};

template <class S, class M>
[[gnu::always_inline]] inline void store_parameters(const PassRun& run, int64_t i, typename S::Float p, auto lanes) {
  S::store(static_cast<M*>(run.parameters) + i, p, lanes);
  if (run.bfloat16 != nullptr) S::store(run.bfloat16 + i, p, lanes);
  if (run.half != nullptr) S::store(run.half + i, p, lanes);
}

// Gradients are of type G, parameters of M, states of M or T. Sets each vector of parameters to updated(i, lanes, p,
// g), and of those at rest touches no more than it must.
template <class S, class G, class M, class States, class Updated>
[[gnu::always_inline]] inline void for_each_parameter(const PassRun& run, const AtRest<States>& at_rest,
                                                      Updated&& updated) {
  using Float = typename S::Float;
  auto* const parameters = static_cast<M*>(run.parameters);
  auto* const gradients = static_cast<G*>(run.gradients);
  const Float scale = S::set(run.gradient_scale);
  const bool zeroes = run.zeroes_gradients;
  for_each_vector<S>(run.count, [&](int64_t i, auto lanes) {
    const Float gradient = S::load(gradients + i, lanes);
    if (at_rest.is_possible && S::is_all_zero_bits(S::bit_or(gradient, at_rest.states(i, lanes)))) {
      if (at_rest.shrink == 1.0F) return;
      return store_parameters<S, M>(run, i, S::load(parameters + i, lanes) * S::set(at_rest.shrink), lanes);
    }
    store_parameters<S, M>(run, i, updated(i, lanes, S::load(parameters + i, lanes), gradient * scale), lanes);
    if (zeroes) S::store(gradients + i, S::zero(), lanes);
  });
}

template <class S, class G, class M = float, class T = M>
void adam_run(const PassRun& run, const AdamFactors& f) {
  using Float = typename S::Float;
  auto* const exp_avg = static_cast<T*>(run.first);
  auto* const exp_avg_sq = static_cast<T*>(run.second);
  auto* const max_exp_avg_sq = static_cast<T*>(run.third);
  const AtRest at_rest{f.gradient_decay == 0.0F, f.shrink, [&](int64_t i, auto lanes) {
                         return S::bit_or(S::load(exp_avg + i, lanes), S::load(exp_avg_sq + i, lanes));
                       }};
  for_each_parameter<S, G, M>(run, at_rest, [&](int64_t i, auto lanes, Float p, Float gradient) {
    const Float g = S::fma(p, S::set(f.gradient_decay), gradient);
    const Float m = S::fma(S::load(exp_avg + i, lanes), S::set(f.beta1), g * S::set(f.one_minus_beta1));
    Float v = S::fma(S::load(exp_avg_sq + i, lanes), S::set(f.beta2), g * g * S::set(f.one_minus_beta2));
    S::store(exp_avg + i, m, lanes);
    S::store(exp_avg_sq + i, v, lanes);
    if (max_exp_avg_sq != nullptr) {
      v = S::max(S::load(max_exp_avg_sq + i, lanes), v);  // NaN, if v is
      S::store(max_exp_avg_sq + i, v, lanes);
    }
    const Float denominator = S::fma(S::sqrt(v), S::set(f.denominator_factor), S::set(f.epsilon));
    return S::fnma(S::set(f.step_size), m / denominator, p * S::set(f.shrink));
  });
}

template <class S, class G, class M = float>
void adagrad_run(const PassRun& run, const AdagradFactors& f) {
  using Float = typename S::Float;
  auto* const sum = static_cast<M*>(run.first);
  // The sum stays as it is.
  const AtRest at_rest{f.gradient_decay == 0.0F, 1.0F, [](int64_t, auto) { return S::zero(); }};
  for_each_parameter<S, G, M>(run, at_rest, [&](int64_t i, auto lanes, Float p, Float gradient) {
    const Float g = S::fma(p, S::set(f.gradient_decay), gradient);
    const Float s = S::fma(g, g, S::load(sum + i, lanes));
    S::store(sum + i, s, lanes);
    return S::fnma(S::set(f.step_size), g / (S::sqrt(s) + S::set(f.epsilon)), p);
  });
}

template <class S, class G, class M = float>
void lion_run(const PassRun& run, const LionFactors& f) {
  using Float = typename S::Float;
  auto* const exp_avg = static_cast<M*>(run.first);
  // A parameter of -0 would become 0.
  const AtRest never{false, 1.0F, [](int64_t, auto) { return S::zero(); }};
  for_each_parameter<S, G, M>(run, never, [&](int64_t i, auto lanes, Float p, Float g) {
    const Float m = S::load(exp_avg + i, lanes);
    const Float direction = S::fma(m, S::set(f.beta1), g * S::set(f.one_minus_beta1));
    // 0 and NaN go through as they are.
    const Float down = S::less_select(S::zero(), direction, S::set(-f.step_size), direction);
    const Float move = S::less_select(direction, S::zero(), S::set(f.step_size), down);
    S::store(exp_avg + i, S::fma(m, S::set(f.beta2), g * S::set(f.one_minus_beta2)), lanes);
    return S::fma(p, S::set(f.shrink), move);
  });
}

template <class S, class G, class M = float>
void sgd_run(const PassRun& run, const SgdFactors& f) {
  using Float = typename S::Float;
  auto* const buffer = static_cast<M*>(run.first);
  const AtRest at_rest{f.gradient_decay == 0.0F, 1.0F, [&](int64_t i, auto lanes) {
                         return buffer == nullptr ? S::zero() : S::load(buffer + i, lanes);
                       }};
  for_each_parameter<S, G, M>(run, at_rest, [&](int64_t i, auto lanes, Float p, Float gradient) {
    const Float g = S::fma(p, S::set(f.gradient_decay), gradient);
    Float direction = g;
    if (buffer != nullptr) {
      const Float b = S::fma(S::load(buffer + i, lanes), S::set(f.momentum), g * S::set(f.share));
      S::store(buffer + i, b, lanes);
      direction = f.nesterov ? S::fma(b, S::set(f.momentum), g) : b;
    }
    return S::fnma(S::set(f.step_size), direction, p);
  });
}

}  // namespace
}  // namespace strake::kernels
