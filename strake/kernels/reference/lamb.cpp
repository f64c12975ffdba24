#include <cmath>

#include "strake/kernels/lamb_rungs.h"

namespace strake::kernels::reference {
namespace {

float direction(float p, float m, float v, const LambFactors& f) {
  return std::fma(f.weight_decay, p, m / (std::sqrt(v) + f.epsilon));
}

template <class G>
LambRunSums moments(const PassRun& run, const LambFactors& f) {
  const auto* gradients = static_cast<const G*>(run.gradients);
  LambRunSums sums{};
  for (int64_t i = 0; i < run.count; ++i) {
    const float g = run.gradient_scale * to_float(gradients[i]);
    run.first[i] = std::fma(f.beta1, run.first[i], f.one_minus_beta1 * g);
    run.second[i] = std::fma(f.beta2, run.second[i], f.one_minus_beta2 * (g * g));
    const double p = run.parameters[i];
    const double u = direction(run.parameters[i], run.first[i], run.second[i], f);
    sums.parameter += p * p;
    sums.update += u * u;
  }
  return sums;
}

void apply(const PassRun& run, const LambFactors& f) {
  for (int64_t i = 0; i < run.count; ++i) {
    const float u = direction(run.parameters[i], run.first[i], run.second[i], f);
    const float p = std::fma(-f.step_size, u, run.parameters[i]);
    run.parameters[i] = p;
    if (run.bfloat16 != nullptr) run.bfloat16[i] = to_bfloat16(p);
    if (run.half != nullptr) run.half[i] = to_half(p);
  }
}

}  // namespace

const LambRung kLamb{Isa::kReference, {&moments<float>, &moments<BFloat16>, &moments<Half>}, &apply};

}  // namespace strake::kernels::reference
