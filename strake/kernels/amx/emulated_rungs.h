#pragma once

#include "strake/kernels/int8_matmul_rungs.h"

// The rungs of AMX on emulated tiles, for tests. They need AVX-512.
namespace strake::kernels::amx {

extern const Int8MatmulRung<BFloat16> kEmulatedInt8Matmul;
extern const Int8MatmulRung<float> kEmulatedInt8MatmulToFloat;

}  // namespace strake::kernels::amx
