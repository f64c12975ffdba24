#include "strake/kernels/simd/residual_layer_norm.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const ResidualLayerNormRung<float> kResidualLayerNormFloat{Isa::kAvx512,
                                                           &residual_layer_norm_forward_range<Avx512, float>,
                                                           &residual_layer_norm_backward_range<Avx512, float>};
const ResidualLayerNormRung<BFloat16> kResidualLayerNormBFloat16{Isa::kAvx512,
                                                                 &residual_layer_norm_forward_range<Avx512, BFloat16>,
                                                                 &residual_layer_norm_backward_range<Avx512, BFloat16>};
const ResidualLayerNormRung<Half> kResidualLayerNormHalf{Isa::kAvx512, &residual_layer_norm_forward_range<Avx512, Half>,
                                                         &residual_layer_norm_backward_range<Avx512, Half>};

}  // namespace strake::kernels::avx512
