#include "strake/kernels/simd/adamw.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const AdamWRung kAdamW{Isa::kAvx512, &adamw_range<Avx512>};

}  // namespace strake::kernels::avx512
