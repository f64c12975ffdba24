#include "strake/kernels/simd/amx.h"
#include "strake/kernels/simd/attention_tiles.h"

namespace strake::kernels::amx {

const AttentionRung<BFloat16> kAttentionBFloat16 = tiled_attention_rung<Amx>(Isa::kAmx);

}  // namespace strake::kernels::amx
