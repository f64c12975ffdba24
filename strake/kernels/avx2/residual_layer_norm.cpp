#include "strake/kernels/simd/residual_layer_norm.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const ResidualLayerNormRung<float> kResidualLayerNormFloat{Isa::kAvx2, &residual_layer_norm_forward_range<Avx2, float>,
                                                           &residual_layer_norm_backward_range<Avx2, float>};
const ResidualLayerNormRung<BFloat16> kResidualLayerNormBFloat16{Isa::kAvx2,
                                                                 &residual_layer_norm_forward_range<Avx2, BFloat16>,
                                                                 &residual_layer_norm_backward_range<Avx2, BFloat16>};
const ResidualLayerNormRung<Half> kResidualLayerNormHalf{Isa::kAvx2, &residual_layer_norm_forward_range<Avx2, Half>,
                                                         &residual_layer_norm_backward_range<Avx2, Half>};

}  // namespace strake::kernels::avx2
