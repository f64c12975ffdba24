#include "strake/kernels/simd/amx.h"
#include "strake/kernels/simd/matmul_tiles.h"

namespace strake::kernels::amx {

const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16 = tiled_rung<Amx, BFloat16>(Isa::kAmx);
const MatmulRung<BFloat16, float> kMatmulBFloat16ToFloat = tiled_rung<Amx, float>(Isa::kAmx);

}  // namespace strake::kernels::amx
