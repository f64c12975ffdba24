#pragma once

#include "strake/kernels/column_sum.h"

namespace strake::kernels {

template <typename T>
struct ColumnSumRung {
  Isa isa;
  void (*add)(const ColumnSumArgs<T>&, int64_t begin, int64_t end, float* sums);  // tokens [begin, end)
};

namespace reference {
extern const ColumnSumRung<float> kColumnSumFloat;
extern const ColumnSumRung<BFloat16> kColumnSumBFloat16;
extern const ColumnSumRung<Half> kColumnSumHalf;
}  // namespace reference
namespace avx2 {
extern const ColumnSumRung<float> kColumnSumFloat;
extern const ColumnSumRung<BFloat16> kColumnSumBFloat16;
extern const ColumnSumRung<Half> kColumnSumHalf;
}  // namespace avx2
namespace avx512 {
extern const ColumnSumRung<float> kColumnSumFloat;
extern const ColumnSumRung<BFloat16> kColumnSumBFloat16;
extern const ColumnSumRung<Half> kColumnSumHalf;
}  // namespace avx512

}  // namespace strake::kernels
