#pragma once

#include "strake/kernels/bias_activation.h"

namespace strake::kernels {

// Functions on tokens [begin, end). The backward one adds to dbias[columns], which may be null.
template <typename T>
struct BiasActivationRung {
  Isa isa;
  void (*forward)(const BiasActivationForward<T>&, int64_t begin, int64_t end);
  void (*backward)(const BiasActivationBackward<T>&, int64_t begin, int64_t end, float* dbias);
};

namespace reference {
extern const BiasActivationRung<float> kBiasActivationFloat;
extern const BiasActivationRung<BFloat16> kBiasActivationBFloat16;
extern const BiasActivationRung<Half> kBiasActivationHalf;
}  // namespace reference
namespace avx2 {
extern const BiasActivationRung<float> kBiasActivationFloat;
extern const BiasActivationRung<BFloat16> kBiasActivationBFloat16;
extern const BiasActivationRung<Half> kBiasActivationHalf;
}  // namespace avx2
namespace avx512 {
extern const BiasActivationRung<float> kBiasActivationFloat;
extern const BiasActivationRung<BFloat16> kBiasActivationBFloat16;
extern const BiasActivationRung<Half> kBiasActivationHalf;
// With AVX512-BF16's conversion: results are rounded alike, but denormal ones become 0.
extern const BiasActivationRung<BFloat16> kBiasActivationBFloat16Conversion;
}  // namespace avx512

}  // namespace strake::kernels
