#include "strake/kernels/column_sum.h"

#include <type_traits>

#include "strake/kernels/column_sum_rungs.h"
#include "strake/kernels/ladder.h"
#include "strake/kernels/token_chunks.h"

namespace strake::kernels {
namespace {

constexpr Ladder<ColumnSumRung<float>, 3> kFloatLadder{&avx512::kColumnSumFloat, &avx2::kColumnSumFloat,
                                                       &reference::kColumnSumFloat};
constexpr Ladder<ColumnSumRung<BFloat16>, 3> kBFloat16Ladder{&avx512::kColumnSumBFloat16, &avx2::kColumnSumBFloat16,
                                                             &reference::kColumnSumBFloat16};
constexpr Ladder<ColumnSumRung<Half>, 3> kHalfLadder{&avx512::kColumnSumHalf, &avx2::kColumnSumHalf,
                                                     &reference::kColumnSumHalf};

template <typename T>
const ColumnSumRung<T>& pick_rung(Isa highest) {
  if constexpr (std::is_same_v<T, float>) {
    return pick(kFloatLadder, highest);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return pick(kBFloat16Ladder, highest);
  } else {
    return pick(kHalfLadder, highest);
  }
}

}  // namespace

template <typename T>
void column_sum(const ColumnSumArgs<T>& args, Isa highest) {
  const ColumnSumRung<T>& rung = pick_rung<T>(highest);
  ColumnSumArgs<T> strided = args;
  if (strided.stride == 0) strided.stride = args.columns;
  sum_over_tokens(args.tokens, args.columns, args.out,
                  [&](int64_t begin, int64_t end, float* partial) { rung.add(strided, begin, end, partial); });
}

template void column_sum(const ColumnSumArgs<float>&, Isa);
template void column_sum(const ColumnSumArgs<BFloat16>&, Isa);
template void column_sum(const ColumnSumArgs<Half>&, Isa);

}  // namespace strake::kernels
