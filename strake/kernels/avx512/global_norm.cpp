#include "strake/kernels/simd/global_norm.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const SquaresRung<float> kSquaresFloat{Isa::kAvx512, &squares_of<Avx512, float>};
const SquaresRung<BFloat16> kSquaresBFloat16{Isa::kAvx512, &squares_of<Avx512, BFloat16>};
const SquaresRung<Half> kSquaresHalf{Isa::kAvx512, &squares_of<Avx512, Half>};

}  // namespace strake::kernels::avx512
