#include "strake/kernels/column_sum_rungs.h"

namespace strake::kernels::reference {
namespace {

template <typename T>
void add(const ColumnSumArgs<T>& args, int64_t begin, int64_t end, float* sums) {
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t c = 0; c < args.columns; ++c) sums[c] += to_float(args.x[token * args.stride + c]);
  }
}

}  // namespace

const ColumnSumRung<float> kColumnSumFloat{Isa::kReference, &add<float>};
const ColumnSumRung<BFloat16> kColumnSumBFloat16{Isa::kReference, &add<BFloat16>};
const ColumnSumRung<Half> kColumnSumHalf{Isa::kReference, &add<Half>};

}  // namespace strake::kernels::reference
