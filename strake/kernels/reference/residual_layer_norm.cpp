#include <cmath>

#include "strake/kernels/residual_layer_norm_rungs.h"

namespace strake::kernels::reference {
namespace {

template <typename T>
void forward(const ResidualLayerNormForward<T>& args, const KeepRule& keep, int64_t begin, int64_t end) {
  T* const sum = args.sum == nullptr ? args.y : args.sum;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t row = token * args.stride;
    float total = 0;
    for (int64_t c = 0; c < args.columns; ++c) {
      const float residual = args.residual == nullptr ? 0.0F : to_float(args.residual[row + c]);
      sum[row + c] = from_float<T>(to_float(args.x[row + c]) * keep_factor(keep, token, c) + residual);
      total += to_float(sum[row + c]);
    }
    const float mean = total / static_cast<float>(args.columns);
    float squares = 0;
    for (int64_t c = 0; c < args.columns; ++c) {
      const float centred = to_float(sum[row + c]) - mean;
      squares += centred * centred;
    }
    const float rstd = 1.0F / std::sqrt(squares / static_cast<float>(args.columns) + args.eps);
    for (int64_t c = 0; c < args.columns; ++c) {
      const float normal = (to_float(sum[row + c]) - mean) * rstd;
      args.y[row + c] = from_float<T>(normal * to_float(args.gamma[c]) + to_float(args.beta[c]));
    }
    args.mean[token] = mean;
    args.rstd[token] = rstd;
  }
}

// With n = (sum - mean) rstd and g = dy gamma: dsum = rstd (g - mean(g) - n mean(g n)).
template <typename T>
void backward(const ResidualLayerNormBackward<T>& args, const KeepRule& keep, int64_t begin, int64_t end,
              float* partial) {
  for (int64_t token = begin; token < end; ++token) {
    const int64_t row = token * args.columns;
    const auto normal = [&](int64_t c) { return (to_float(args.sum[row + c]) - args.mean[token]) * args.rstd[token]; };
    float sum_g = 0;
    float sum_gn = 0;
    for (int64_t c = 0; c < args.columns; ++c) {
      const float dy = to_float(args.dy[row + c]);
      sum_g += dy * to_float(args.gamma[c]);
      sum_gn += dy * to_float(args.gamma[c]) * normal(c);
      partial[c] += dy * normal(c);
      partial[args.columns + c] += dy;
    }
    const float mean_g = sum_g / static_cast<float>(args.columns);
    const float mean_gn = sum_gn / static_cast<float>(args.columns);
    for (int64_t c = 0; c < args.columns; ++c) {
      const float g = to_float(args.dy[row + c]) * to_float(args.gamma[c]);
      const float above = args.dsum_in == nullptr ? 0.0F : to_float(args.dsum_in[row + c]);
      const float dsum = args.rstd[token] * (g - mean_g - normal(c) * mean_gn) + above;
      args.dsum[row + c] = from_float<T>(dsum);
      args.dx[row + c] = from_float<T>(dsum * keep_factor(keep, token, c));
    }
  }
}

}  // namespace

const ResidualLayerNormRung<float> kResidualLayerNormFloat{Isa::kReference, &forward<float>, &backward<float>};
const ResidualLayerNormRung<BFloat16> kResidualLayerNormBFloat16{Isa::kReference, &forward<BFloat16>,
                                                                 &backward<BFloat16>};
const ResidualLayerNormRung<Half> kResidualLayerNormHalf{Isa::kReference, &forward<Half>, &backward<Half>};

}  // namespace strake::kernels::reference
