#include "strake/kernels/simd/dropout.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const DropoutRung<float> kDropoutFloat{Isa::kAvx2, &dropout_range<Avx2, float>};
const DropoutRung<BFloat16> kDropoutBFloat16{Isa::kAvx2, &dropout_range<Avx2, BFloat16>};
const DropoutRung<Half> kDropoutHalf{Isa::kAvx2, &dropout_range<Avx2, Half>};

}  // namespace strake::kernels::avx2
