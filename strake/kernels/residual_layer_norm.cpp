#include "strake/kernels/residual_layer_norm.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/kernels/ladder.h"
#include "strake/kernels/residual_layer_norm_rungs.h"
#include "strake/kernels/token_chunks.h"

namespace strake::kernels {
namespace {

template <typename T>
constexpr std::nullptr_t kLadder = nullptr;
template <>
constexpr Ladder<ResidualLayerNormRung<float>, 3> kLadder<float>{
    &avx512::kResidualLayerNormFloat, &avx2::kResidualLayerNormFloat, &reference::kResidualLayerNormFloat};
template <>
constexpr Ladder<ResidualLayerNormRung<BFloat16>, 4> kLadder<BFloat16>{
    &avx512::kResidualLayerNormBFloat16Conversion, &avx512::kResidualLayerNormBFloat16,
    &avx2::kResidualLayerNormBFloat16, &reference::kResidualLayerNormBFloat16};
template <>
constexpr Ladder<ResidualLayerNormRung<Half>, 3> kLadder<Half>{
    &avx512::kResidualLayerNormHalf, &avx2::kResidualLayerNormHalf, &reference::kResidualLayerNormHalf};

constexpr int64_t kGrain = 8;  // tokens

}  // namespace

template <typename T>
void residual_layer_norm_forward(const ResidualLayerNormForward<T>& args, Isa highest) {
  const ResidualLayerNormRung<T>& rung = pick(kLadder<T>, highest);
  const KeepRule keep = keep_rule(args.dropout, args.index);
  parallel_for(args.tokens, kGrain, [&](int64_t begin, int64_t end) { rung.forward(args, keep, begin, end); });
}

template <typename T>
void residual_layer_norm_backward(const ResidualLayerNormBackward<T>& args, Isa highest) {
  const ResidualLayerNormRung<T>& rung = pick(kLadder<T>, highest);
  const KeepRule keep = keep_rule(args.dropout, args.index);
  require(!keep.active || args.dx != args.dsum, ErrorKind::kInternal, "dx and dsum must differ when dropout is on");
  std::vector<float> sums(static_cast<size_t>(2 * args.columns));
  sum_over_tokens(args.tokens, 2 * args.columns, sums.data(),
                  [&](int64_t begin, int64_t end, float* partial) { rung.backward(args, keep, begin, end, partial); });
  std::copy_n(sums.data(), args.columns, args.dgamma);
  std::copy_n(sums.data() + args.columns, args.columns, args.dbeta);
}

template void residual_layer_norm_forward(const ResidualLayerNormForward<float>&, Isa);
template void residual_layer_norm_forward(const ResidualLayerNormForward<BFloat16>&, Isa);
template void residual_layer_norm_forward(const ResidualLayerNormForward<Half>&, Isa);
template void residual_layer_norm_backward(const ResidualLayerNormBackward<float>&, Isa);
template void residual_layer_norm_backward(const ResidualLayerNormBackward<BFloat16>&, Isa);
template void residual_layer_norm_backward(const ResidualLayerNormBackward<Half>&, Isa);

}  // namespace strake::kernels
