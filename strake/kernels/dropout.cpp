#include "strake/kernels/dropout.h"

#include <type_traits>

#include "strake/core/threads.h"
#include "strake/kernels/dropout_rungs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

constexpr Ladder<DropoutRung<float>, 3> kFloatLadder{&avx512::kDropoutFloat, &avx2::kDropoutFloat,
                                                     &reference::kDropoutFloat};
constexpr Ladder<DropoutRung<BFloat16>, 3> kBFloat16Ladder{&avx512::kDropoutBFloat16, &avx2::kDropoutBFloat16,
                                                           &reference::kDropoutBFloat16};
constexpr Ladder<DropoutRung<Half>, 3> kHalfLadder{&avx512::kDropoutHalf, &avx2::kDropoutHalf,
                                                   &reference::kDropoutHalf};

template <typename T>
const DropoutRung<T>& pick_rung(Isa highest) {
  if constexpr (std::is_same_v<T, float>) {
    return pick(kFloatLadder, highest);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return pick(kBFloat16Ladder, highest);
  } else {
    return pick(kHalfLadder, highest);
  }
}

constexpr int64_t kGrain = 8;  // tokens

}  // namespace

template <typename T>
void dropout(const DropoutArgs<T>& args, Isa highest) {
  const DropoutRung<T>& rung = pick_rung<T>(highest);
  const KeepRule keep = keep_rule(args.dropout, args.index);
  parallel_for(args.tokens, kGrain, [&](int64_t begin, int64_t end) { rung.apply(args, keep, begin, end); });
}

template void dropout(const DropoutArgs<float>&, Isa);
template void dropout(const DropoutArgs<BFloat16>&, Isa);
template void dropout(const DropoutArgs<Half>&, Isa);

}  // namespace strake::kernels
