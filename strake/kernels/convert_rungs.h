#pragma once

#include "strake/kernels/convert.h"

namespace strake::kernels {

// To and from a type of 16 bits.
template <typename T>
struct Conversions {
  void (*round)(const float* from, T* to, int64_t count);
  void (*widen)(const T* from, float* to, int64_t count);
  void (*add)(float* sum, const T* x, int64_t count);
};

struct ConvertRung {
  Isa isa;
  void (*add_float)(float* sum, const float* x, int64_t count);
  Conversions<BFloat16> bfloat16;
  Conversions<Half> half;
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
