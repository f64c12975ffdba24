#include "strake/kernels/cross_entropy.h"

#include <cstddef>

#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/kernels/cross_entropy_rungs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

template <typename T>
constexpr std::nullptr_t kLadder = nullptr;
template <>
constexpr Ladder<CrossEntropyRung<float>, 3> kLadder<float>{&avx512::kCrossEntropyFloat, &avx2::kCrossEntropyFloat,
                                                            &reference::kCrossEntropyFloat};
template <>
constexpr Ladder<CrossEntropyRung<BFloat16>, 3> kLadder<BFloat16>{
    &avx512::kCrossEntropyBFloat16, &avx2::kCrossEntropyBFloat16, &reference::kCrossEntropyBFloat16};
template <>
constexpr Ladder<CrossEntropyRung<Half>, 3> kLadder<Half>{&avx512::kCrossEntropyHalf, &avx2::kCrossEntropyHalf,
                                                          &reference::kCrossEntropyHalf};

}  // namespace

template <typename T>
void cross_entropy(const CrossEntropyArgs<T>& args, Isa highest) {
  for (int64_t token = 0; token < args.tokens; ++token) {
    require(args.targets[token] >= 0 && args.targets[token] < args.classes, ErrorKind::kData,
            "target {} is not one of {} classes", args.targets[token], args.classes);
  }
  const CrossEntropyRung<T>& rung = pick(kLadder<T>, highest);
  parallel_for(args.tokens, 1, [&](int64_t begin, int64_t end) { rung.run(args, begin, end); });
}

template void cross_entropy(const CrossEntropyArgs<float>&, Isa);
template void cross_entropy(const CrossEntropyArgs<BFloat16>&, Isa);
template void cross_entropy(const CrossEntropyArgs<Half>&, Isa);

}  // namespace strake::kernels
