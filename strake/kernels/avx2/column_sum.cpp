#include "strake/kernels/simd/column_sum.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {

const ColumnSumRung<float> kColumnSumFloat{Isa::kAvx2, &column_sum_range<Avx2, float>};
const ColumnSumRung<BFloat16> kColumnSumBFloat16{Isa::kAvx2, &column_sum_range<Avx2, BFloat16>};
const ColumnSumRung<Half> kColumnSumHalf{Isa::kAvx2, &column_sum_range<Avx2, Half>};

}  // namespace strake::kernels::avx2
