#include "strake/kernels/simd/adamw.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const AdamWRung kAdamW{Isa::kAvx2, &adamw_range<Avx2>};

}  // namespace strake::kernels::avx2
