#pragma once

#include "strake/kernels/int8_matmul_rungs.h"
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

  static uint32_t largest_magnitude(const BFloat16* x, int64_t count, const BFloat16* soon) {
    const Int magnitude = _mm512_set1_epi16(0x7FFF);
    Int largest = _mm512_setzero_si512();
    const auto add = [&](Int numbers) { largest = _mm512_max_epi16(largest, _mm512_and_si512(numbers, magnitude)); };
    int64_t i = 0;
    for (; i + 64 <= count; i += 64) {
      __builtin_prefetch(soon + i / 2);
      add(_mm512_loadu_si512(x + i));
      add(_mm512_loadu_si512(x + i + 32));
    }
    for (; i + 32 <= count; i += 32) add(_mm512_loadu_si512(x + i));
    if (i < count) add(_mm512_maskz_loadu_epi16((1U << (count - i)) - 1U, x + i));
    const Int even = _mm512_and_si512(largest, _mm512_set1_epi32(0xFFFF));
    return static_cast<uint32_t>(_mm512_reduce_max_epi32(_mm512_max_epi32(even, _mm512_srli_epi32(largest, 16))));
  }

  // to[i] = x[i] * inverse, rounded; may write up to the next multiple of 16.
  static void quantize(const BFloat16* x, int64_t count, float inverse, int8_t* to, const BFloat16* soon) {
    const __m512 factor = _mm512_set1_ps(inverse);
    int64_t i = 0;
    for (; i + 64 <= count; i += 64) {
      __builtin_prefetch(soon + i / 2);
      const Int words = _mm512_permutex2var_epi16(quantized_pairs(x + i, factor), _mm512_load_si512(kLowerHalves),
                                                  quantized_pairs(x + i + 32, factor));
      _mm512_storeu_si512(to + i, words);
    }
    for_each_vector<Avx512>(count - i, [&](int64_t j, auto lanes) {
      const Int q = rounded(Avx512::load(x + i + j, lanes), factor);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i + j), _mm512_cvtepi32_epi8(q));
    });
  }

 private:
  alignas(64) static constexpr uint16_t kLowerHalves[] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                          22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                                          44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  // The lowest byte is the integer.
  static Int rounded(__m512 x, __m512 factor) {
    return _mm512_castps_si512(_mm512_fmadd_ps(x, factor, _mm512_set1_ps(kRoundingAddend)));
  }
  // 32 numbers, two in the lower half of each lane.
  static Int quantized_pairs(const BFloat16* x, __m512 factor) {
    const Int pairs = _mm512_loadu_si512(x);
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
    const Int low = rounded(even, factor);
    const Int high = _mm512_slli_epi32(rounded(odd, factor), 8);
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xFF), low, high, 0xCA);  // low where the mask is set
  }
};

}  // namespace
}  // namespace strake::kernels
