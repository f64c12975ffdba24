#include "strake/kernels/dropout.h"

#include <cstddef>

#include "strake/core/error.h"
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

KeepRule keep_rule(const Dropout& dropout, const TokenIndex& index) {
  require(dropout.p >= 0 && dropout.p < 1, ErrorKind::kInternal, "dropout probability {} is not in [0, 1)", dropout.p);
  require(dropout.site < 65536, ErrorKind::kInternal, "dropout site {} is not below 65536", dropout.site);
  const bool active = dropout.p > 0;
  require(!active || (index.row != nullptr && index.position != nullptr), ErrorKind::kInternal,
          "dropout needs to know the row and position of each token");
  return {dropout.key, dropout.site, dropout_threshold(dropout.p), 1.0F / (1.0F - dropout.p), active, index};
}

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
