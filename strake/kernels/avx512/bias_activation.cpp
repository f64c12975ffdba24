#include "strake/kernels/simd/bias_activation.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const BiasActivationRung<float> kBiasActivationFloat{Isa::kAvx512, &bias_activation_forward_range<Avx512, float>,
                                                     &bias_activation_backward_range<Avx512, float>};
const BiasActivationRung<BFloat16> kBiasActivationBFloat16{
    Isa::kAvx512, &bias_activation_forward_range<Avx512, BFloat16>, &bias_activation_backward_range<Avx512, BFloat16>};
const BiasActivationRung<Half> kBiasActivationHalf{Isa::kAvx512, &bias_activation_forward_range<Avx512, Half>,
                                                   &bias_activation_backward_range<Avx512, Half>};

}  // namespace strake::kernels::avx512
