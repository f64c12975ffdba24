#include "strake/kernels/simd/cross_entropy.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const CrossEntropyRung<float> kCrossEntropyFloat{Isa::kAvx512, &cross_entropy_range<Avx512, float>};
const CrossEntropyRung<BFloat16> kCrossEntropyBFloat16{Isa::kAvx512, &cross_entropy_range<Avx512, BFloat16>};
const CrossEntropyRung<Half> kCrossEntropyHalf{Isa::kAvx512, &cross_entropy_range<Avx512, Half>};

}  // namespace strake::kernels::avx512
