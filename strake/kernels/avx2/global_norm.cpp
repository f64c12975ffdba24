#include "strake/kernels/simd/global_norm.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const SquaresRung<float> kSquaresFloat{Isa::kAvx2, &squares_of<Avx2, float>};
const SquaresRung<BFloat16> kSquaresBFloat16{Isa::kAvx2, &squares_of<Avx2, BFloat16>};
const SquaresRung<Half> kSquaresHalf{Isa::kAvx2, &squares_of<Avx2, Half>};

}  // namespace strake::kernels::avx2
