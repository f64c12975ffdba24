#include "strake/kernels/simd/column_sum.h"

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels::avx512 {

const ColumnSumRung<float> kColumnSumFloat{Isa::kAvx512, &column_sum_range<Avx512, float>};
const ColumnSumRung<BFloat16> kColumnSumBFloat16{Isa::kAvx512, &column_sum_range<Avx512, BFloat16>};
const ColumnSumRung<Half> kColumnSumHalf{Isa::kAvx512, &column_sum_range<Avx512, Half>};

}  // namespace strake::kernels::avx512
