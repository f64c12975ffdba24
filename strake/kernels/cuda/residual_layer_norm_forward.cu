#include "strake/kernels/cuda/residual_layer_norm.cuh"

namespace strake::kernels::cuda {
namespace {

template <typename T, typename Team>
__global__ void __launch_bounds__(Team::kRows* Team::kThreads)
    forward_kernel(ResidualLayerNormForward<T> args, Keep keep, bool aligned) {
  __shared__ float shared[2][kWarp];
  const int64_t token = Team::row();
  if (token >= args.tokens) return;
  const int64_t row = token * args.stride;
  const TokenCounter counter = counter_of(keep, token);
  Quad<T> sums[Team::kQuads];
  float total = 0;
#pragma unroll
  for (int q = 0; q < Team::kQuads; ++q) {
    const int64_t c = Team::column(q), count = args.columns - c;
    if (count <= 0) break;
    const auto x = load_chunk<Quad<T>>(args.x + row + c, count, aligned);
    const auto residual =
        args.residual == nullptr ? Quad<T>{} : load_chunk<Quad<T>>(args.residual + row + c, count, aligned);
    const KeepFactors factors = keep_factors(keep, counter, c / 4);
    for (int i = 0; i < 4; ++i) {
      sums[q].at[i] = narrow<T>(wide(x.at[i]) * factors.of[i] + wide(residual.at[i]));
      total += wide(sums[q].at[i]);  // zeros behind the row
    }
    if (args.sum != nullptr) store_chunk(args.sum + row + c, sums[q], count, aligned);
  }
  const float mean = Team::sum(total, shared[0]) / static_cast<float>(args.columns);
  float squares = 0;
#pragma unroll
  for (int q = 0; q < Team::kQuads; ++q) {
    const int64_t count = args.columns - Team::column(q);
    if (count <= 0) break;
    for (int i = 0; i < 4; ++i) {
      const float centred = i < count ? wide(sums[q].at[i]) - mean : 0.0F;
      squares += centred * centred;
    }
  }
  const float variance = Team::sum(squares, shared[1]) / static_cast<float>(args.columns);
  const float rstd = 1.0F / sqrtf(variance + args.eps);
#pragma unroll
  for (int q = 0; q < Team::kQuads; ++q) {
    const int64_t c = Team::column(q), count = args.columns - c;
    if (count <= 0) break;
    const auto gamma = load_chunk<Quad<T>>(args.gamma + c, count, aligned);
    const auto beta = load_chunk<Quad<T>>(args.beta + c, count, aligned);
    Quad<T> y;
    for (int i = 0; i < 4; ++i) {
      const float normal = (wide(sums[q].at[i]) - mean) * rstd;
      y.at[i] = narrow<T>(normal * wide(gamma.at[i]) + wide(beta.at[i]));
    }
    store_chunk(args.y + row + c, y, count, aligned);
  }
  if (Team::column(0) == 0) {
    args.mean[token] = mean;
    args.rstd[token] = rstd;
  }
}

}  // namespace

template <typename T>
int residual_layer_norm_forward(const ResidualLayerNormForward<T>& args, void* stream) {
  const bool aligned =
      are_aligned<Quad<T>>({args.columns, args.stride}, args.x, args.residual, args.gamma, args.beta, args.sum, args.y);
  return with_team(args.columns, [&]<typename Team>() {
    return launch(&forward_kernel<T, Team>, {ceil_div(args.tokens, Team::kRows)}, Team::kRows * Team::kThreads, stream,
                  args, keep_of(args.dropout, args.index), aligned);
  });
}

#define STRAKE_INSTANTIATE(T) template int residual_layer_norm_forward(const ResidualLayerNormForward<T>&, void*);
STRAKE_INSTANTIATE(float)
STRAKE_INSTANTIATE(BFloat16)
STRAKE_INSTANTIATE(Half)
#undef STRAKE_INSTANTIATE

}  // namespace strake::kernels::cuda
