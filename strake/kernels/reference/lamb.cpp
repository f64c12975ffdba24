#include <cmath>

#include "strake/kernels/lamb_rungs.h"

namespace strake::kernels::reference {
namespace {

float direction(float p, float m, float v, const LambFactors& f) {
  return std::fma(f.weight_decay, p, m / (std::sqrt(v) + f.epsilon));
}

template <class G, class M = float>
LambSums moments(const PassRun& run, const LambFactors& f) {
  const auto* parameters = static_cast<const M*>(run.parameters);
  auto* first = static_cast<M*>(run.first);
  auto* second = static_cast<M*>(run.second);
  const auto* gradients = static_cast<const G*>(run.gradients);
  LambSums sums{};
  for (int64_t i = 0; i < run.count; ++i) {
    const float g = run.gradient_scale * to_float(gradients[i]);
    first[i] = from_float<M>(std::fma(f.beta1, to_float(first[i]), f.one_minus_beta1 * g));
    second[i] = from_float<M>(std::fma(f.beta2, to_float(second[i]), f.one_minus_beta2 * (g * g)));
    const double p = to_float(parameters[i]);
    const double u = direction(to_float(parameters[i]), to_float(first[i]), to_float(second[i]), f);
    sums.parameter += p * p;
    sums.update += u * u;
  }
  return sums;
}

template <class M>
void apply(const PassRun& run, const LambFactors& f) {
  auto* parameters = static_cast<M*>(run.parameters);
  const auto* first = static_cast<const M*>(run.first);
  const auto* second = static_cast<const M*>(run.second);
  for (int64_t i = 0; i < run.count; ++i) {
    const float u = direction(to_float(parameters[i]), to_float(first[i]), to_float(second[i]), f);
    const float p = std::fma(-f.step_size, u, to_float(parameters[i]));
    parameters[i] = from_float<M>(p);
    if (run.bfloat16 != nullptr) run.bfloat16[i] = to_bfloat16(p);
    if (run.half != nullptr) run.half[i] = to_half(p);
  }
}

}  // namespace

const LambRung kLamb{Isa::kReference,
                     {&moments<float>, &moments<BFloat16>, &moments<Half>, &moments<BFloat16, BFloat16>},
                     {&apply<float>, &apply<BFloat16>}};

}  // namespace strake::kernels::reference
