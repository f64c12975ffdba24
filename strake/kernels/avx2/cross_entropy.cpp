#include "strake/kernels/simd/cross_entropy.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const CrossEntropyRung<float> kCrossEntropyFloat{Isa::kAvx2, &cross_entropy_range<Avx2, float>};
const CrossEntropyRung<BFloat16> kCrossEntropyBFloat16{Isa::kAvx2, &cross_entropy_range<Avx2, BFloat16>};
const CrossEntropyRung<Half> kCrossEntropyHalf{Isa::kAvx2, &cross_entropy_range<Avx2, Half>};

}  // namespace strake::kernels::avx2
