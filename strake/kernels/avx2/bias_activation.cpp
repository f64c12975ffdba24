#include "strake/kernels/simd/bias_activation.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const BiasActivationRung<float> kBiasActivationFloat{Isa::kAvx2, &bias_activation_forward_range<Avx2, float>,
                                                     &bias_activation_backward_range<Avx2, float>};
const BiasActivationRung<BFloat16> kBiasActivationBFloat16{Isa::kAvx2, &bias_activation_forward_range<Avx2, BFloat16>,
                                                           &bias_activation_backward_range<Avx2, BFloat16>};
const BiasActivationRung<Half> kBiasActivationHalf{Isa::kAvx2, &bias_activation_forward_range<Avx2, Half>,
                                                   &bias_activation_backward_range<Avx2, Half>};

}  // namespace strake::kernels::avx2
