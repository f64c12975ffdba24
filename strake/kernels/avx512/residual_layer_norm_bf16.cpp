#include "strake/kernels/simd/avx512_bf16.h"
#include "strake/kernels/simd/residual_layer_norm.h"

namespace strake::kernels::avx512 {

const ResidualLayerNormRung<BFloat16> kResidualLayerNormBFloat16Conversion{
    Isa::kAvx512Bf16, &residual_layer_norm_forward_range<Avx512Bf16, BFloat16>,
    &residual_layer_norm_backward_range<Avx512Bf16, BFloat16>};

}  // namespace strake::kernels::avx512
