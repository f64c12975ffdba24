#include "strake/kernels/amx/emulated_rungs.h"

#include "strake/kernels/amx/emulated_tiles.h"
#include "strake/kernels/simd/int8_tiles.h"

namespace strake::kernels::amx {

const Int8MatmulRung<BFloat16> kEmulatedInt8Matmul =
    int8_rung<Int8TileUnits, BFloat16, Int8Tiler<EmulatedTiles>>(Isa::kAmx);
const Int8MatmulRung<float> kEmulatedInt8MatmulToFloat =
    int8_rung<Int8TileUnits, float, Int8Tiler<EmulatedTiles>>(Isa::kAmx);

}  // namespace strake::kernels::amx
