#include "strake/kernels/dropout.h"

#include <cstddef>

#include "strake/core/threads.h"
#include "strake/kernels/dropout_rungs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

template <typename T>
constexpr std::nullptr_t kLadder = nullptr;
template <>
constexpr Ladder<DropoutRung<float>, 3> kLadder<float>{&avx512::kDropoutFloat, &avx2::kDropoutFloat,
                                                       &reference::kDropoutFloat};
template <>
constexpr Ladder<DropoutRung<BFloat16>, 3> kLadder<BFloat16>{&avx512::kDropoutBFloat16, &avx2::kDropoutBFloat16,
                                                             &reference::kDropoutBFloat16};
template <>
constexpr Ladder<DropoutRung<Half>, 3> kLadder<Half>{&avx512::kDropoutHalf, &avx2::kDropoutHalf,
                                                     &reference::kDropoutHalf};

constexpr int64_t kGrain = 8;  // tokens

}  // namespace

template <typename T>
void dropout(const DropoutArgs<T>& args, Isa highest) {
  const DropoutRung<T>& rung = pick(kLadder<T>, highest);
  const KeepRule keep = keep_rule(args.dropout, args.index);
  parallel_for(args.tokens, kGrain, [&](int64_t begin, int64_t end) { rung.apply(args, keep, begin, end); });
}

template void dropout(const DropoutArgs<float>&, Isa);
template void dropout(const DropoutArgs<BFloat16>&, Isa);
template void dropout(const DropoutArgs<Half>&, Isa);

}  // namespace strake::kernels
