#pragma once

#include "strake/kernels/convert.h"

namespace strake::kernels {

struct ConvertRung {
  Isa isa;
  void (*round)(const float* from, BFloat16* to, int64_t count);
  void (*widen)(const BFloat16* from, float* to, int64_t count);
  void (*add_float)(float* sum, const float* x, int64_t count);
  void (*add_bfloat16)(float* sum, const BFloat16* x, int64_t count);
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
