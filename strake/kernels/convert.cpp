#include "strake/kernels/convert.h"

#include <type_traits>

#include "strake/core/threads.h"
#include "strake/kernels/convert_rungs.h"
#include "strake/kernels/ladder.h"

namespace strake::kernels {
namespace {

constexpr Ladder<ConvertRung, 3> kLadder{&avx512::kConvert, &avx2::kConvert, &reference::kConvert};

constexpr int64_t kGrain = 16384;  // elements

template <typename T>
const Conversions<T>& conversions(const ConvertRung& rung) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return rung.bfloat16;
  } else {
    return rung.half;
  }
}

}  // namespace

template <typename T>
void convert(const float* from, T* to, int64_t count, Isa highest) {
  const auto round = conversions<T>(pick(kLadder, highest)).round;
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) { round(from + begin, to + begin, end - begin); });
}

template <typename T>
void convert(const T* from, float* to, int64_t count, Isa highest) {
  const auto widen = conversions<T>(pick(kLadder, highest)).widen;
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) { widen(from + begin, to + begin, end - begin); });
}

template <typename T>
void accumulate(float* sum, const T* x, int64_t count, Isa highest) {
  const ConvertRung& rung = pick(kLadder, highest);
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      rung.add_float(sum + begin, x + begin, end - begin);
    } else {
      conversions<T>(rung).add(sum + begin, x + begin, end - begin);
    }
  });
}

template void convert(const float*, BFloat16*, int64_t, Isa);
template void convert(const float*, Half*, int64_t, Isa);
template void convert(const BFloat16*, float*, int64_t, Isa);
template void convert(const Half*, float*, int64_t, Isa);
template void accumulate(float*, const float*, int64_t, Isa);
template void accumulate(float*, const BFloat16*, int64_t, Isa);
template void accumulate(float*, const Half*, int64_t, Isa);

}  // namespace strake::kernels
