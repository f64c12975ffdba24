#pragma once

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels {
namespace {

// What the int8 rungs of AVX-512 share.
struct Int8Avx512 {
  using Simd = Avx512;
  using Int = __m512i;
  static constexpr int kTileRows = 12;  // 24 sums, 2 vectors of B and one of A in 32 registers

  static Int load_sums(const int32_t* p) { return _mm512_loadu_si512(p); }
  static void store_sums(int32_t* p, Int sums) { _mm512_storeu_si512(p, sums); }
  static __m512 sums_as_float(const int32_t* p) { return _mm512_cvtepi32_ps(_mm512_loadu_si512(p)); }
  static Int broadcast(const float* unit) { return _mm512_castps_si512(_mm512_set1_ps(*unit)); }

  // Bits of the largest magnitude: they have the order of the numbers, and NaN comes last.
  static uint32_t largest_magnitude(const BFloat16* x, int64_t count) {
    const Int magnitude = _mm512_set1_epi16(0x7FFF);
    Int largest = _mm512_setzero_si512();
    int64_t i = 0;
    for (; i + 32 <= count; i += 32) {
      largest = _mm512_max_epi16(largest, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude));
    }
    if (i < count) {
      const Int rest = _mm512_maskz_loadu_epi16((1U << (count - i)) - 1U, x + i);
      largest = _mm512_max_epi16(largest, _mm512_and_si512(rest, magnitude));
    }
    const Int even = _mm512_and_si512(largest, _mm512_set1_epi32(0xFFFF));
    return static_cast<uint32_t>(_mm512_reduce_max_epi32(_mm512_max_epi32(even, _mm512_srli_epi32(largest, 16))));
  }

  // to[i] = x[i] * inverse, rounded; may write up to the next multiple of 16.
  static void quantize(const BFloat16* x, int64_t count, float inverse, int8_t* to) {
    const __m512 factor = _mm512_set1_ps(inverse);
    for_each_vector<Avx512>(count, [&](int64_t i, auto lanes) {
      const Int q = _mm512_cvtps_epi32(Avx512::load(x + i, lanes) * factor);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm512_cvtepi32_epi8(q));
    });
  }
};

}  // namespace
}  // namespace strake::kernels
