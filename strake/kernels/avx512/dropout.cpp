#include "strake/kernels/simd/dropout.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const DropoutRung<float> kDropoutFloat{Isa::kAvx512, &dropout_range<Avx512, float>};
const DropoutRung<BFloat16> kDropoutBFloat16{Isa::kAvx512, &dropout_range<Avx512, BFloat16>};
const DropoutRung<Half> kDropoutHalf{Isa::kAvx512, &dropout_range<Avx512, Half>};

}  // namespace strake::kernels::avx512
