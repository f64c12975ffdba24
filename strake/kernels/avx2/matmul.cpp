#include "strake/kernels/simd/matmul.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const MatmulRung<float, float> kMatmulFloat = matmul_rung<Singles<Avx2>, float, float>(Isa::kAvx2);
const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16 = matmul_rung<Singles<Avx2>, BFloat16, BFloat16>(Isa::kAvx2);
const MatmulRung<BFloat16, float> kMatmulBFloat16ToFloat = matmul_rung<Singles<Avx2>, BFloat16, float>(Isa::kAvx2);

}  // namespace strake::kernels::avx2
