#include "strake/kernels/cross_entropy.h"

#include <type_traits>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/kernels/cross_entropy_rungs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

constexpr Ladder<CrossEntropyRung<float>, 3> kFloatLadder{&avx512::kCrossEntropyFloat, &avx2::kCrossEntropyFloat,
                                                          &reference::kCrossEntropyFloat};
constexpr Ladder<CrossEntropyRung<BFloat16>, 3> kBFloat16Ladder{
    &avx512::kCrossEntropyBFloat16, &avx2::kCrossEntropyBFloat16, &reference::kCrossEntropyBFloat16};
constexpr Ladder<CrossEntropyRung<Half>, 3> kHalfLadder{&avx512::kCrossEntropyHalf, &avx2::kCrossEntropyHalf,
                                                        &reference::kCrossEntropyHalf};

template <typename T>
const CrossEntropyRung<T>& pick_rung(Isa highest) {
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
void cross_entropy(const CrossEntropyArgs<T>& args, Isa highest) {
  for (int64_t token = 0; token < args.tokens; ++token) {
    require(args.targets[token] >= 0 && args.targets[token] < args.classes, ErrorKind::kData,
            "target {} is not one of {} classes", args.targets[token], args.classes);
  }
  const CrossEntropyRung<T>& rung = pick_rung<T>(highest);
  parallel_for(args.tokens, 1, [&](int64_t begin, int64_t end) { rung.run(args, begin, end); });
}

template void cross_entropy(const CrossEntropyArgs<float>&, Isa);
template void cross_entropy(const CrossEntropyArgs<BFloat16>&, Isa);
template void cross_entropy(const CrossEntropyArgs<Half>&, Isa);

}  // namespace strake::kernels
