#pragma once

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels {
namespace {

// A unit is a pair of bf16.
struct BFloat16Pairs {
  using Simd = Avx512;
  using Float = __m512;
  static constexpr int kDepthPerUnit = 2;
  static constexpr int64_t kDepthStep = 1;

  static Float along(const BFloat16* p, int64_t left) {
    if (left >= 32) return _mm512_loadu_ps(p);
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16((1U << left) - 1U, p));
  }
  template <class Lanes>
  static Float across(const BFloat16* p, int64_t stride, int64_t left, Lanes lanes) {
    const __m512i even = _mm512_cvtepu16_epi32(load(p, lanes));
    if (left < 2) return _mm512_castsi512_ps(even);
    const __m512i odd = _mm512_slli_epi32(_mm512_cvtepu16_epi32(load(p + stride, lanes)), 16);
    return _mm512_castsi512_ps(_mm512_or_si512(even, odd));
  }

 private:
  static __m256i load(const BFloat16* p, Full) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static __m256i load(const BFloat16* p, Part part) { return _mm256_maskz_loadu_epi16(Avx512::lanes(part), p); }
};

}  // namespace
}  // namespace strake::kernels
