#include "strake/kernels/simd/convert.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const ConvertRung kConvert{Isa::kAvx2, &convert_range<Avx2, BFloat16>, &convert_range<Avx2, Half>};

}  // namespace strake::kernels::avx2
