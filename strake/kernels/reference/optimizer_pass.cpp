#include "strake/kernels/optimizer_pass_rungs.h"

#include <cmath>

namespace strake::kernels::reference {
namespace {

// Sets each parameter to updated(i, p, g).
template <class G, class Updated>
void for_each_element(const PassRun& run, const Updated& updated) {
  auto* gradients = static_cast<G*>(run.gradients);
  for (int64_t i = 0; i < run.count; ++i) {
    const float p = updated(i, run.parameters[i], run.gradient_scale * to_float(gradients[i]));
    run.parameters[i] = p;
    if (run.bfloat16 != nullptr) run.bfloat16[i] = to_bfloat16(p);
    if (run.half != nullptr) run.half[i] = to_half(p);
    if (run.zeroes_gradients) gradients[i] = from_float<G>(0.0F);
  }
}

template <class G>
void adam(const PassRun& run, const AdamFactors& f) {
  for_each_element<G>(run, [&](int64_t i, float p, float gradient) {
    const float g = std::fma(f.gradient_decay, p, gradient);
    const float m = std::fma(f.beta1, run.first[i], f.one_minus_beta1 * g);
    const float v = std::fma(f.beta2, run.second[i], f.one_minus_beta2 * (g * g));
    const float denominator = std::fma(f.denominator_factor, std::sqrt(v), f.epsilon);
    run.first[i] = m;
    run.second[i] = v;
    return std::fma(-f.step_size, m / denominator, f.shrink * p);
  });
}

template <class G>
void adagrad(const PassRun& run, const AdagradFactors& f) {
  for_each_element<G>(run, [&](int64_t i, float p, float gradient) {
    const float g = std::fma(f.gradient_decay, p, gradient);
    const float s = std::fma(g, g, run.first[i]);
    run.first[i] = s;
    return std::fma(-f.step_size, g / (std::sqrt(s) + f.epsilon), p);
  });
}

template <class G>
void lion(const PassRun& run, const LionFactors& f) {
  for_each_element<G>(run, [&](int64_t i, float p, float g) {
    const float m = run.first[i];
    const float direction = std::fma(f.beta1, m, f.one_minus_beta1 * g);
    // 0 and NaN go through as they are.
    const float move = direction < 0 ? f.step_size : direction > 0 ? -f.step_size : direction;
    run.first[i] = std::fma(f.beta2, m, f.one_minus_beta2 * g);
    return std::fma(f.shrink, p, move);
  });
}

template <class G>
void sgd(const PassRun& run, const SgdFactors& f) {
  for_each_element<G>(run, [&](int64_t i, float p, float gradient) {
    const float g = std::fma(f.gradient_decay, p, gradient);
    if (run.first == nullptr) return std::fma(-f.step_size, g, p);
    const float b = std::fma(f.momentum, run.first[i], f.share * g);
    run.first[i] = b;
    return std::fma(-f.step_size, f.nesterov ? std::fma(f.momentum, b, g) : b, p);
  });
}

}  // namespace

const OptimizerPassRung kOptimizerPass{Isa::kReference,
                                       {&adam<float>, &adam<BFloat16>, &adam<Half>},
                                       {&adagrad<float>, &adagrad<BFloat16>, &adagrad<Half>},
                                       {&lion<float>, &lion<BFloat16>, &lion<Half>},
                                       {&sgd<float>, &sgd<BFloat16>, &sgd<Half>}};

}  // namespace strake::kernels::reference
