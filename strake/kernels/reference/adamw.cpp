#include <cmath>

#include "strake/kernels/adamw_rungs.h"

namespace strake::kernels::reference {
namespace {

void update(const AdamW& args, const AdamWFactors& f, float shrink, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float g = f.gradient_scale * args.gradients[i];
    const float m = f.beta1 * args.exp_avg[i] + f.one_minus_beta1 * g;
    const float v = f.beta2 * args.exp_avg_sq[i] + f.one_minus_beta2 * (g * g);
    const float denominator = std::sqrt(v) * f.denominator_factor + f.epsilon;
    args.parameters[i] = shrink * args.parameters[i] - f.step_size * (m / denominator);
    args.exp_avg[i] = m;
    args.exp_avg_sq[i] = v;
    if (args.rounded != nullptr) args.rounded[i] = to_bfloat16(args.parameters[i]);
  }
}

}  // namespace

const AdamWRung kAdamW{Isa::kReference, &update};

}  // namespace strake::kernels::reference
