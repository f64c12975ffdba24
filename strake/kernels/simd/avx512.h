#pragma once

#include <immintrin.h>

#include "strake/kernels/bfloat16.h"
#include "strake/kernels/half.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

// 16 lanes: AVX-512 F, BW, DQ, VL. Where an operand is NaN, max and min return the second one.
struct Avx512 {
  static constexpr int kLanes = 16;
  static constexpr int kGemmRows = 6;  // 6 x 4 accumulators, 4 vectors of B and one of A in 32 registers
  static constexpr int kGemmVectors = 4;
  using Float = __m512;
  using Int = __m512i;

  static Float zero() { return _mm512_setzero_ps(); }
  static Float set(float x) { return _mm512_set1_ps(x); }
  static Int set_int(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static __mmask16 lanes(Part part) { return static_cast<__mmask16>((1U << part.n) - 1U); }

  static Float load(const float* p, Full = {}) { return _mm512_loadu_ps(p); }
  static Float load(const float* p, Part part) { return _mm512_maskz_loadu_ps(lanes(part), p); }
  static Float load(const BFloat16* p, Full = {}) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Float load(const BFloat16* p, Part part) { return widen(_mm256_maskz_loadu_epi16(lanes(part), p)); }
  static Float load(const Half* p, Full = {}) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Float load(const Half* p, Part part) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes(part), p)); }
  static Float load_or(Float, const float* p, Full) { return _mm512_loadu_ps(p); }
  static Float load_or(Float other, const float* p, Part part) { return _mm512_mask_loadu_ps(other, lanes(part), p); }
  static Float first(Float v, Full) { return v; }
  static Float first(Float v, Part part) { return _mm512_maskz_mov_ps(lanes(part), v); }  // other lanes: 0
  static Int load_int(const uint32_t* p) { return _mm512_loadu_si512(p); }

  static void store(float* p, Float v, Full = {}) { _mm512_storeu_ps(p, v); }
  static void store(float* p, Float v, Part part) { _mm512_mask_storeu_ps(p, lanes(part), v); }
  static void store(BFloat16* p, Float v, Full = {}) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(v)); }
  static void store(BFloat16* p, Float v, Part part) { _mm256_mask_storeu_epi16(p, lanes(part), narrow(v)); }
  template <typename T>
  static void store_two(T* p, Float a, Float b) {
    store(p, a);
    store(p + kLanes, b);
  }
  static void store_two(BFloat16* p, Float a, Float b) {
    alignas(64) static constexpr uint16_t kUpperHalves[] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                            23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                            45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const Int which = _mm512_load_si512(kUpperHalves);
    _mm512_storeu_si512(p, _mm512_permutex2var_epi16(rounded(a), which, rounded(b)));
  }
  // What a load would find where v was stored.
  static Float as_stored(const float*, Float v) { return v; }
  static Float as_stored(const BFloat16*, Float v) {
    return _mm512_castsi512_ps(_mm512_and_si512(rounded(v), set_int(0xFFFF0000)));
  }
  static void store(Half* p, Float v, Full = {}) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store(Half* p, Float v, Part part) {
    _mm256_mask_storeu_epi16(p, lanes(part), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }

  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }    // a b + c
  static Float fnma(Float a, Float b, Float c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b
  static Float fms(Float a, Float b, Float c) { return _mm512_fmsub_ps(a, b, c); }    // a b - c
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
  static Float abs(Float a) { return _mm512_abs_ps(a); }
  static Float sqrt(Float a) { return _mm512_sqrt_ps(a); }
  // 1/a to 1 ulp for normal a (one Newton step): a division would be the slowest instruction of its loop.
  static Float reciprocal(Float a) {
    const Float guess = _mm512_rcp14_ps(a);
    return fma(guess, fnma(a, guess, set(1.0F)), guess);
  }
  static Float less_select(Float a, Float b, Float yes, Float no) {  // a < b ? yes : no
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  // Lane by lane the entry of a table of 16, on 64 bytes, that the lowest 4 bits of `at` name.
  static Float pick(const float* table, Float at) {
    return _mm512_permutexvar_ps(_mm512_castps_si512(at), _mm512_load_ps(table));
  }
  static Float bit_or(Float a, Float b) { return _mm512_or_ps(a, b); }
  static bool is_all_zero_bits(Float a) {
    const Int bits = _mm512_castps_si512(a);
    return _mm512_test_epi32_mask(bits, bits) == 0;
  }
  static Float round(Float a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Float times_power_of_two(Float a, Float n) { return _mm512_scalef_ps(a, n); }  // n is whole
  static float sum(Float a) { return _mm512_reduce_add_ps(a); }
  static float maximum(Float a) { return _mm512_reduce_max_ps(a); }

  // x = mantissa * 2^exponent with mantissa in [1, 2), for positive normal x.
  static Float exponent(Float x) { return _mm512_getexp_ps(x); }
  static Float mantissa(Float x) { return _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero); }

  // v with the lanes set to 0 whose bit is 0.
  static Float keep(Float v, uint32_t bits) { return _mm512_maskz_mov_ps(static_cast<__mmask16>(bits), v); }

  static Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int xor3(Int a, Int b, Int c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }
  static Int iota() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
  // 32 x 32 -> 64 bit products, upper and lower halves.
  static void multiply(Int a, Int b, Int& high, Int& low) {
    const Int even = _mm512_mul_epu32(a, b);
    const Int odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
    high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_CDAB);
    low = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CDAB);
  }
  // Bit 4 * lane + k says whether word k of that lane is at or above the threshold.
  static uint64_t at_least(const Int (&words)[4], uint32_t threshold) {
    const Int least = set_int(threshold);
    Int bytes = _mm512_maskz_mov_epi32(_mm512_cmpge_epu32_mask(words[0], least), set_int(0x80));
    bytes = _mm512_mask_or_epi32(bytes, _mm512_cmpge_epu32_mask(words[1], least), bytes, set_int(0x8000));
    bytes = _mm512_mask_or_epi32(bytes, _mm512_cmpge_epu32_mask(words[2], least), bytes, set_int(0x800000));
    bytes = _mm512_mask_or_epi32(bytes, _mm512_cmpge_epu32_mask(words[3], least), bytes, set_int(0x80000000));
    return _mm512_movepi8_mask(bytes);
  }

  // Adds the squares of the lanes, in double.
  struct Squares {
    __m512d low = _mm512_setzero_pd();
    __m512d high = _mm512_setzero_pd();
    void add(Float v) {
      const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
      const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
      low = _mm512_fmadd_pd(a, a, low);
      high = _mm512_fmadd_pd(b, b, high);
    }
    double total() const { return _mm512_reduce_add_pd(low) + _mm512_reduce_add_pd(high); }
  };

  static void transpose(Float (&r)[kLanes]) {
    Float t[kLanes];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
      t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      r[i] = unpack_low(t[i], t[i + 2]);
      r[i + 1] = unpack_high(t[i], t[i + 2]);
      r[i + 2] = unpack_low(t[i + 1], t[i + 3]);
      r[i + 3] = unpack_high(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {  // 4 x 4 transposes of 128-bit quarters
      const Float a = _mm512_shuffle_f32x4(r[k], r[4 + k], 0x88);
      const Float b = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0x88);
      const Float c = _mm512_shuffle_f32x4(r[k], r[4 + k], 0xDD);
      const Float d = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0xDD);
      r[k] = _mm512_shuffle_f32x4(a, b, 0x88);
      r[4 + k] = _mm512_shuffle_f32x4(c, d, 0x88);
      r[8 + k] = _mm512_shuffle_f32x4(a, b, 0xDD);
      r[12 + k] = _mm512_shuffle_f32x4(c, d, 0xDD);
    }
  }

 private:
  static Float unpack_low(Float a, Float b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  static Float unpack_high(Float a, Float b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  static Float widen(__m256i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16)); }
  // To bf16, in the upper halves; the lower ones are undefined. The instruction VCVTNEPS2BF16 is not used: it flushes
  // denormal numbers to zero.
  static Int rounded(Float v) {
    const Int bits = _mm512_castps_si512(v);
    const Int odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), set_int(1));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(add(bits, add(odd, set_int(0x7FFF))), nan, set_int(0x7FC00000));
  }
  static __m256i narrow(Float v) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded(v), 16)); }
};

}  // namespace
}  // namespace strake::kernels
