#pragma once

#include "strake/kernels/keep_rule.h"
#include "strake/kernels/residual_layer_norm.h"

namespace strake::kernels {

// Functions on tokens [begin, end). The backward one adds to partial[2 * columns]: dgamma, then dbeta.
template <typename T>
struct ResidualLayerNormRung {
  Isa isa;
  void (*forward)(const ResidualLayerNormForward<T>&, const KeepRule&, int64_t begin, int64_t end);
  void (*backward)(const ResidualLayerNormBackward<T>&, const KeepRule&, int64_t begin, int64_t end, float* partial);
};

namespace reference {
extern const ResidualLayerNormRung<float> kResidualLayerNormFloat;
extern const ResidualLayerNormRung<BFloat16> kResidualLayerNormBFloat16;
extern const ResidualLayerNormRung<Half> kResidualLayerNormHalf;
}  // namespace reference
namespace avx2 {
extern const ResidualLayerNormRung<float> kResidualLayerNormFloat;
extern const ResidualLayerNormRung<BFloat16> kResidualLayerNormBFloat16;
extern const ResidualLayerNormRung<Half> kResidualLayerNormHalf;
}  // namespace avx2
namespace avx512 {
extern const ResidualLayerNormRung<float> kResidualLayerNormFloat;
extern const ResidualLayerNormRung<BFloat16> kResidualLayerNormBFloat16;
extern const ResidualLayerNormRung<Half> kResidualLayerNormHalf;
// With AVX512-BF16.
extern const ResidualLayerNormRung<BFloat16> kResidualLayerNormBFloat16Conversion;
}  // namespace avx512

}  // namespace strake::kernels
