// Takes the place of the other files of this folder in a test program: the rungs of AMX on tiles in software, for
// processors with AVX512-BF16. The tests of all rungs then test them.
#include "strake/kernels/amx/emulated_tiles.h"
#include "strake/kernels/simd/attention_tiles.h"
#include "strake/kernels/simd/int8_tiles.h"
#include "strake/kernels/simd/matmul_tiles.h"

namespace strake::kernels::amx {

const AttentionRung<BFloat16> kAttentionBFloat16 = tiled_attention_rung<EmulatedTiles>(Isa::kAvx512Bf16);
const Int8MatmulRung<BFloat16> kInt8Matmul =
    int8_rung<Int8TileUnits, BFloat16, Int8Tiler<EmulatedTiles>>(Isa::kAvx512Bf16);
const Int8MatmulRung<float> kInt8MatmulToFloat =
    int8_rung<Int8TileUnits, float, Int8Tiler<EmulatedTiles>>(Isa::kAvx512Bf16);
const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16 = tiled_rung<EmulatedTiles, BFloat16>(Isa::kAvx512Bf16);
const MatmulRung<BFloat16, float> kMatmulBFloat16ToFloat = tiled_rung<EmulatedTiles, float>(Isa::kAvx512Bf16);

}  // namespace strake::kernels::amx
