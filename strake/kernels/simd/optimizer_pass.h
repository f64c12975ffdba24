#pragma once

#include "strake/kernels/optimizer_pass_rungs.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

// Gradients are of type G, parameters of M, states of M or T. Sets each vector of parameters to updated(i, lanes, p,
// g). If they `may_rest`, vectors are only read whose gradient and rest(i, lanes) have no bit set, which no rule
// changes without weight decay: most of a table of embeddings, while fine-tuning.
template <class S, class G, class M, class Rest, class Updated>
[[gnu::always_inline]] inline void for_each_parameter(const PassRun& run, bool may_rest, Rest&& rest,
                                                      Updated&& updated) {
  using Float = typename S::Float;
  auto* const parameters = static_cast<M*>(run.parameters);
  auto* const gradients = static_cast<G*>(run.gradients);
  BFloat16* const bfloat16 = run.bfloat16;
  Half* const half = run.half;
  const Float scale = S::set(run.gradient_scale);
  const bool zeroes = run.zeroes_gradients;
  for_each_vector<S>(run.count, [&](int64_t i, auto lanes) {
    const Float gradient = S::load(gradients + i, lanes);
    if (may_rest && S::is_all_zero_bits(S::bit_or(gradient, rest(i, lanes)))) return;
    const Float p = updated(i, lanes, S::load(parameters + i, lanes), gradient * scale);
    S::store(parameters + i, p, lanes);
    if (bfloat16 != nullptr) S::store(bfloat16 + i, p, lanes);
    if (half != nullptr) S::store(half + i, p, lanes);
    if (zeroes) S::store(gradients + i, S::zero(), lanes);
  });
}

template <class S, class G, class M = float, class T = M>
void adam_run(const PassRun& run, const AdamFactors& f) {
  using Float = typename S::Float;
  auto* const exp_avg = static_cast<T*>(run.first);
  auto* const exp_avg_sq = static_cast<T*>(run.second);
  auto* const max_exp_avg_sq = static_cast<T*>(run.third);
  const bool may_rest = f.shrink == 1.0F && f.gradient_decay == 0.0F;
  const auto rest = [&](int64_t i, auto lanes) {
    return S::bit_or(S::load(exp_avg + i, lanes), S::load(exp_avg_sq + i, lanes));
  };
  for_each_parameter<S, G, M>(run, may_rest, rest, [&](int64_t i, auto lanes, Float p, Float gradient) {
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
  const auto rest = [](int64_t, auto) { return S::zero(); };  // the sum stays as it is
  for_each_parameter<S, G, M>(run, f.gradient_decay == 0.0F, rest, [&](int64_t i, auto lanes, Float p, Float gradient) {
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
  const auto rest = [&](int64_t i, auto lanes) { return S::load(exp_avg + i, lanes); };
  for_each_parameter<S, G, M>(run, f.shrink == 1.0F, rest, [&](int64_t i, auto lanes, Float p, Float g) {
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
  const auto rest = [&](int64_t i, auto lanes) { return buffer == nullptr ? S::zero() : S::load(buffer + i, lanes); };
  for_each_parameter<S, G, M>(run, f.gradient_decay == 0.0F, rest, [&](int64_t i, auto lanes, Float p, Float gradient) {
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
