#include "strake/kernels/simd/convert.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const ConvertRung kConvert{
    Isa::kAvx512,
    &accumulate_range<Avx512, float>,
    {&convert_range<Avx512, float, BFloat16>, &convert_range<Avx512, BFloat16, float>,
     &accumulate_range<Avx512, BFloat16>},
    {&convert_range<Avx512, float, Half>, &convert_range<Avx512, Half, float>, &accumulate_range<Avx512, Half>}};

}  // namespace strake::kernels::avx512
