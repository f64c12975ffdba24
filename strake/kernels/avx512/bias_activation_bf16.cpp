#include "strake/kernels/simd/bias_activation.h"

#include "strake/kernels/simd/avx512_bf16.h"

namespace strake::kernels::avx512 {

const BiasActivationRung<BFloat16> kBiasActivationBFloat16Conversion{
    Isa::kAvx512Bf16, &bias_activation_forward_range<Avx512Bf16, BFloat16>,
    &bias_activation_backward_range<Avx512Bf16, BFloat16>};

}  // namespace strake::kernels::avx512
