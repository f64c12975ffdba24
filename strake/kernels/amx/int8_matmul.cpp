#include "strake/kernels/simd/amx.h"
#include "strake/kernels/simd/int8_tiles.h"

namespace strake::kernels::amx {

const Int8MatmulRung<BFloat16> kInt8Matmul = int8_rung<Int8TileUnits, BFloat16, Int8Tiler<Amx>>(Isa::kAmx);
const Int8MatmulRung<float> kInt8MatmulToFloat = int8_rung<Int8TileUnits, float, Int8Tiler<Amx>>(Isa::kAmx);

}  // namespace strake::kernels::amx
