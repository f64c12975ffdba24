#include "strake/kernels/simd/matmul.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const MatmulRung<float, float> kMatmulFloat = matmul_rung<Singles<Avx512>, float, float>(Isa::kAvx512);
const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16 = matmul_rung<Singles<Avx512>, BFloat16, BFloat16>(Isa::kAvx512);
const MatmulRung<BFloat16, float> kMatmulBFloat16ToFloat = matmul_rung<Singles<Avx512>, BFloat16, float>(Isa::kAvx512);

}  // namespace strake::kernels::avx512
