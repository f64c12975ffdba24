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

void convert(const float* from, BFloat16* to, int64_t count, Isa highest) {
  const ConvertRung& rung = pick(kLadder, highest);
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) { rung.round(from + begin, to + begin, end - begin); });
}

void convert(const BFloat16* from, float* to, int64_t count, Isa highest) {
  const ConvertRung& rung = pick(kLadder, highest);
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) { rung.widen(from + begin, to + begin, end - begin); });
}

template <typename T>
void accumulate(float* sum, const T* x, int64_t count, Isa highest) {
  const ConvertRung& rung = pick(kLadder, highest);
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      rung.add_float(sum + begin, x + begin, end - begin);
    } else {
      rung.add_bfloat16(sum + begin, x + begin, end - begin);
    }
  });
}

template void accumulate(float*, const float*, int64_t, Isa);
template void accumulate(float*, const BFloat16*, int64_t, Isa);

}  // namespace strake::kernels
