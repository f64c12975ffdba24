#include "strake/kernels/convert.h"

#include <type_traits>

#include "strake/core/threads.h"
#include "strake/kernels/convert_rungs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

constexpr Ladder<ConvertRung, 3> kLadder{&avx512::kConvert, &avx2::kConvert, &reference::kConvert};

constexpr int64_t kGrain = 16384;  // elements

}  // namespace

template <typename T>
void convert(const float* from, T* to, int64_t count, Isa highest) {
  const ConvertRung& rung = pick(kLadder, highest);
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      rung.to_bfloat16(from + begin, to + begin, end - begin);
    } else {
      rung.to_half(from + begin, to + begin, end - begin);
    }
  });
}

template void convert(const float*, BFloat16*, int64_t, Isa);
template void convert(const float*, Half*, int64_t, Isa);

}  // namespace strake::kernels
