#include "strake/kernels/bias_activation.h"

#include <cstddef>

#include "strake/core/threads.h"
#include "strake/kernels/bias_activation_rungs.h"
#include "strake/kernels/ladder.h"
#include "strake/kernels/token_chunks.h"

namespace strake::kernels {
namespace {

template <typename T>
constexpr std::nullptr_t kLadder = nullptr;
template <>
constexpr Ladder<BiasActivationRung<float>, 3> kLadder<float>{
    &avx512::kBiasActivationFloat, &avx2::kBiasActivationFloat, &reference::kBiasActivationFloat};
template <>
constexpr Ladder<BiasActivationRung<BFloat16>, 4> kLadder<BFloat16>{
    &avx512::kBiasActivationBFloat16Conversion, &avx512::kBiasActivationBFloat16, &avx2::kBiasActivationBFloat16,
    &reference::kBiasActivationBFloat16};
template <>
constexpr Ladder<BiasActivationRung<Half>, 3> kLadder<Half>{&avx512::kBiasActivationHalf, &avx2::kBiasActivationHalf,
                                                            &reference::kBiasActivationHalf};

constexpr int64_t kGrain = 4;  // tokens

}  // namespace

template <typename T>
void bias_activation_forward(const BiasActivationForward<T>& args, Isa highest) {
  const BiasActivationRung<T>& rung = pick(kLadder<T>, highest);
  parallel_for(args.tokens, kGrain, [&](int64_t begin, int64_t end) { rung.forward(args, begin, end); });
}

template <typename T>
void bias_activation_backward(const BiasActivationBackward<T>& args, Isa highest) {
  const BiasActivationRung<T>& rung = pick(kLadder<T>, highest);
  if (args.dbias == nullptr) {
    parallel_for(args.tokens, kGrain, [&](int64_t begin, int64_t end) { rung.backward(args, begin, end, nullptr); });
    return;
  }
  sum_over_tokens(args.tokens, args.columns, args.dbias,
                  [&](int64_t begin, int64_t end, float* partial) { rung.backward(args, begin, end, partial); });
}

template void bias_activation_forward(const BiasActivationForward<float>&, Isa);
template void bias_activation_forward(const BiasActivationForward<BFloat16>&, Isa);
template void bias_activation_forward(const BiasActivationForward<Half>&, Isa);
template void bias_activation_backward(const BiasActivationBackward<float>&, Isa);
template void bias_activation_backward(const BiasActivationBackward<BFloat16>&, Isa);
template void bias_activation_backward(const BiasActivationBackward<Half>&, Isa);

}  // namespace strake::kernels
