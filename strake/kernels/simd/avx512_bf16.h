#pragma once

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels {
namespace {

// With AVX512-BF16's conversion, one instruction where exact rounding takes ten. As VDPBF16PS and tiles do, it takes
// denormal numbers as 0; all others are rounded the same.
struct Avx512Bf16 : Avx512 {
  using Avx512::store;
  static void store(BFloat16* p, Float v, Full = {}) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), converted(v));
  }
  static void store(BFloat16* p, Float v, Part part) { _mm256_mask_storeu_epi16(p, lanes(part), converted(v)); }
  using Avx512::store_two;
  static void store_two(BFloat16* p, Float a, Float b) {
    _mm512_storeu_si512(p, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
  }
  using Avx512::as_stored;
  static Float as_stored(const BFloat16*, Float v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(converted(v)), 16));
  }

 private:
  static __m256i converted(Float v) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)); }
};

}  // namespace
}  // namespace strake::kernels
