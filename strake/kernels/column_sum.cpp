#include "strake/kernels/column_sum.h"

#include <cstddef>

#include "strake/kernels/column_sum_rungs.h"
#include "strake/kernels/ladder.h"
#include "strake/kernels/token_chunks.h"

namespace strake::kernels {
namespace {

template <typename T>
constexpr std::nullptr_t kLadder = nullptr;
template <>
constexpr Ladder<ColumnSumRung<float>, 3> kLadder<float>{&avx512::kColumnSumFloat, &avx2::kColumnSumFloat,
                                                         &reference::kColumnSumFloat};
template <>
constexpr Ladder<ColumnSumRung<BFloat16>, 3> kLadder<BFloat16>{&avx512::kColumnSumBFloat16, &avx2::kColumnSumBFloat16,
                                                               &reference::kColumnSumBFloat16};
template <>
constexpr Ladder<ColumnSumRung<Half>, 3> kLadder<Half>{&avx512::kColumnSumHalf, &avx2::kColumnSumHalf,
                                                       &reference::kColumnSumHalf};

}  // namespace

template <typename T>
void column_sum(const ColumnSumArgs<T>& args, Isa highest) {
  const ColumnSumRung<T>& rung = pick(kLadder<T>, highest);
  ColumnSumArgs<T> strided = args;
  if (strided.stride == 0) strided.stride = args.columns;
  sum_over_tokens(args.tokens, args.columns, args.out,
                  [&](int64_t begin, int64_t end, float* partial) { rung.add(strided, begin, end, partial); });
}

template void column_sum(const ColumnSumArgs<float>&, Isa);
template void column_sum(const ColumnSumArgs<BFloat16>&, Isa);
template void column_sum(const ColumnSumArgs<Half>&, Isa);

}  // namespace strake::kernels
