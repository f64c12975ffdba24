#pragma once

#include "strake/kernels/convert.h"

namespace strake::kernels {

template <typename T>
using RoundFunction = void (*)(const float* from, T* to, int64_t count);

struct ConvertRung {
  Isa isa;
  RoundFunction<BFloat16> to_bfloat16;
  RoundFunction<Half> to_half;
};

namespace reference {
extern const ConvertRung kConvert;
}  // namespace reference
namespace avx2 {
extern const ConvertRung kConvert;
}  // namespace avx2
namespace avx512 {
extern const ConvertRung kConvert;
}  // namespace avx512

}  // namespace strake::kernels
