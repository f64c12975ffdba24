#include "strake/kernels/optimizer_pass_rungs.h"

#include <cmath>

namespace strake::kernels::reference {
namespace {

// Gradients are of type G, parameters of M, states of M or T. Sets each parameter to updated(i, p, g).
template <class G, class M, class Updated>
void for_each_element(const PassRun& run, const Updated& updated) {
  auto* parameters = static_cast<M*>(run.parameters);
  auto* gradients = static_cast<G*>(run.gradients);
  for (int64_t i = 0; i < run.count; ++i) {
    const float p = updated(i, to_float(parameters[i]), run.gradient_scale * to_float(gradients[i]));
    parameters[i] = from_float<M>(p);
    if (run.bfloat16 != nullptr) run.bfloat16[i] = to_bfloat16(p);
    if (run.half != nullptr) run.half[i] = to_half(p);
    if (run.zeroes_gradients) gradients[i] = from_float<G>(0.0F);
  }
}

template <class G, class M = float, class T = M>
void adam(const PassRun& run, const AdamFactors& f) {
  auto* first = static_cast<T*>(run.first);
  auto* second = static_cast<T*>(run.second);
  auto* largest = static_cast<T*>(run.third);
  for_each_element<G, M>(run, [&](int64_t i, float p, float gradient) {
    const float g = std::fma(f.gradient_decay, p, gradient);
    const float m = std::fma(f.beta1, to_float(first[i]), f.one_minus_beta1 * g);
    float v = std::fma(f.beta2, to_float(second[i]), f.one_minus_beta2 * (g * g));
    first[i] = from_float<T>(m);
    second[i] = from_float<T>(v);
    if (largest != nullptr) {
      const float before = to_float(largest[i]);
      v = before > v ? before : v;
      largest[i] = from_float<T>(v);
    }
    const float denominator = std::fma(f.denominator_factor, std::sqrt(v), f.epsilon);
    return std::fma(-f.step_size, m / denominator, f.shrink * p);
  });
}

template <class G, class M = float>
void adagrad(const PassRun& run, const AdagradFactors& f) {
  auto* first = static_cast<M*>(run.first);
  for_each_element<G, M>(run, [&](int64_t i, float p, float gradient) {
    const float g = std::fma(f.gradient_decay, p, gradient);
    const float s = std::fma(g, g, to_float(first[i]));
    first[i] = from_float<M>(s);
    return std::fma(-f.step_size, g / (std::sqrt(s) + f.epsilon), p);
  });
}

template <class G, class M = float>
void lion(const PassRun& run, const LionFactors& f) {
  auto* first = static_cast<M*>(run.first);
  for_each_element<G, M>(run, [&](int64_t i, float p, float g) {
    const float m = to_float(first[i]);
    const float direction = std::fma(f.beta1, m, f.one_minus_beta1 * g);
    // 0 and NaN go through as they are.
    const float move = direction < 0 ? f.step_size : direction > 0 ? -f.step_size : direction;
    first[i] = from_float<M>(std::fma(f.beta2, m, f.one_minus_beta2 * g));
    return std::fma(f.shrink, p, move);
  });
}

template <class G, class M = float>
void sgd(const PassRun& run, const SgdFactors& f) {
  auto* first = static_cast<M*>(run.first);
  for_each_element<G, M>(run, [&](int64_t i, float p, float gradient) {
    const float g = std::fma(f.gradient_decay, p, gradient);
    if (first == nullptr) return std::fma(-f.step_size, g, p);
    const float b = std::fma(f.momentum, to_float(first[i]), f.share * g);
    first[i] = from_float<M>(b);
    return std::fma(-f.step_size, f.nesterov ? std::fma(f.momentum, b, g) : b, p);
  });
}

}  // namespace

const OptimizerPassRung kOptimizerPass{
    Isa::kReference,
    {&adam<float>, &adam<BFloat16>, &adam<Half>, &adam<BFloat16, BFloat16>, &adam<Half, Half, float>},
    {&adagrad<float>, &adagrad<BFloat16>, &adagrad<Half>, &adagrad<BFloat16, BFloat16>},
    {&lion<float>, &lion<BFloat16>, &lion<Half>, &lion<BFloat16, BFloat16>},
    {&sgd<float>, &sgd<BFloat16>, &sgd<Half>, &sgd<BFloat16, BFloat16>}};

}  // namespace strake::kernels::reference
