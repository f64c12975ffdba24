#include "strake/kernels/simd/convert.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const ConvertRung kConvert{Isa::kAvx512, &convert_range<Avx512, BFloat16>, &convert_range<Avx512, Half>};

}  // namespace strake::kernels::avx512
