#pragma once

#include <immintrin.h>

#include "strake/kernels/bfloat16.h"
#include "strake/kernels/half.h"
#include "strake/kernels/simd/lanes.h"

namespace strake::kernels {
namespace {

// 8 lanes: AVX2, FMA and F16C. Where an operand is NaN, max and min return the second one.
struct Avx2 {
  static constexpr int kLanes = 8;
  static constexpr int kGemmRows = 6;  // 6 x 2 accumulators, 2 vectors of B and one of A in 16 registers
  static constexpr int kGemmVectors = 2;
  using Float = __m256;
  using Int = __m256i;

  static Float zero() { return _mm256_setzero_ps(); }
  static Float set(float x) { return _mm256_set1_ps(x); }
  static Int set_int(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
  static Int lanes(Part part) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(part.n), iota()); }

  static Float load(const float* p, Full = {}) { return _mm256_loadu_ps(p); }
  static Float load(const float* p, Part part) { return _mm256_maskload_ps(p, lanes(part)); }
  static Float load(const BFloat16* p, Full = {}) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Float load(const BFloat16* p, Part part) {
    alignas(16) BFloat16 copy[kLanes] = {};
    for (int i = 0; i < part.n; ++i) copy[i] = p[i];
    return load(copy);
  }
  static Float load(const Half* p, Full = {}) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Float load(const Half* p, Part part) {
    alignas(16) Half copy[kLanes] = {};
    for (int i = 0; i < part.n; ++i) copy[i] = p[i];
    return load(copy);
  }
  static Float load_or(Float, const float* p, Full) { return _mm256_loadu_ps(p); }
  static Float load_or(Float other, const float* p, Part part) {
    const Int mask = lanes(part);
    return _mm256_blendv_ps(other, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
  }
  static Float first(Float v, Full) { return v; }
  static Float first(Float v, Part part) {  // other lanes: 0
    return _mm256_and_ps(v, _mm256_castsi256_ps(lanes(part)));
  }
  static Int load_int(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

  static void store(float* p, Float v, Full = {}) { _mm256_storeu_ps(p, v); }
  static void store(float* p, Float v, Part part) { _mm256_maskstore_ps(p, lanes(part), v); }
  static void store(BFloat16* p, Float v, Full = {}) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(v)); }
  static void store(BFloat16* p, Float v, Part part) {
    alignas(16) BFloat16 copy[kLanes];
    store(copy, v);
    for (int i = 0; i < part.n; ++i) p[i] = copy[i];
  }
  template <typename T>
  static void store_two(T* p, Float a, Float b) {
    store(p, a);
    store(p + kLanes, b);
  }
  // What a load would find where v was stored.
  static Float as_stored(const float*, Float v) { return v; }
  static Float as_stored(const BFloat16*, Float v) { return widen(narrow(v)); }
  static void store(Half* p, Float v, Full = {}) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store(Half* p, Float v, Part part) {
    alignas(16) Half copy[kLanes];
    store(copy, v);
    for (int i = 0; i < part.n; ++i) p[i] = copy[i];
  }

  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }    // a b + c
  static Float fnma(Float a, Float b, Float c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a b
  static Float fms(Float a, Float b, Float c) { return _mm256_fmsub_ps(a, b, c); }    // a b - c
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static Float min(Float a, Float b) { return _mm256_min_ps(a, b); }
  static Float abs(Float a) { return _mm256_andnot_ps(set(-0.0F), a); }
  static Float sqrt(Float a) { return _mm256_sqrt_ps(a); }
  static Float reciprocal(Float a) { return _mm256_div_ps(set(1.0F), a); }
  static Float less_select(Float a, Float b, Float yes, Float no) {  // a < b ? yes : no
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  // Lane by lane the entry of a table of 16, on 64 bytes, that the lowest 4 bits of `at` name.
  static Float pick(const float* table, Float at) {
    const __m256i bits = _mm256_castps_si256(at);
    const Float low = _mm256_permutevar8x32_ps(_mm256_load_ps(table), bits);
    const Float high = _mm256_permutevar8x32_ps(_mm256_load_ps(table + 8), bits);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 28)));
  }
  static Float bit_or(Float a, Float b) { return _mm256_or_ps(a, b); }
  static bool is_all_zero_bits(Float a) {
    const Int bits = _mm256_castps_si256(a);
    return _mm256_testz_si256(bits, bits) != 0;
  }
  static Float round(Float a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Float times_power_of_two(Float a, Float n) {  // n is whole, |n| <= 250; two steps reach 0 and infinity
    const Int whole = _mm256_cvtps_epi32(n);
    const Int half = _mm256_srai_epi32(whole, 1);
    return a * power_of_two(half) * power_of_two(_mm256_sub_epi32(whole, half));
  }
  static float sum(Float a) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }
  static float maximum(Float a) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }

  // x = mantissa * 2^exponent with mantissa in [1, 2), for positive normal x.
  static Float exponent(Float x) {
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(_mm256_castps_si256(x), 23), set_int(127)));
  }
  static Float mantissa(Float x) {
    const Int bits = _mm256_and_si256(_mm256_castps_si256(x), set_int(0x7FFFFF));
    return _mm256_castsi256_ps(_mm256_or_si256(bits, set_int(0x3F800000)));
  }

  // v with the lanes set to 0 whose bit is 0.
  static Float keep(Float v, uint32_t bits) {
    const Int bit_of_lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const Int mask = _mm256_cmpeq_epi32(_mm256_and_si256(set_int(bits), bit_of_lane), bit_of_lane);
    return _mm256_and_ps(v, _mm256_castsi256_ps(mask));
  }

  static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int xor3(Int a, Int b, Int c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
  static Int iota() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  // 32 x 32 -> 64 bit products, upper and lower halves.
  static void multiply(Int a, Int b, Int& high, Int& low) {
    const Int even = _mm256_mul_epu32(a, b);
    const Int odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
    high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  }
  // Bit 4 * lane + k says whether word k of that lane is at or above the threshold.
  static uint64_t at_least(const Int (&words)[4], uint32_t threshold) {
    const Int least = set_int(threshold);
    Int bytes = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const Int kept = _mm256_cmpeq_epi32(_mm256_max_epu32(words[k], least), words[k]);
      bytes = _mm256_or_si256(bytes, _mm256_and_si256(kept, set_int(0xFFU << (8 * k))));
    }
    return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
  }

  // Adds the squares of the lanes, in double.
  struct Squares {
    __m256d low = _mm256_setzero_pd();
    __m256d high = _mm256_setzero_pd();
    void add(Float v) {
      const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
      const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
      low = _mm256_fmadd_pd(a, a, low);
      high = _mm256_fmadd_pd(b, b, high);
    }
    double total() const {
      const __m256d both = _mm256_add_pd(low, high);
      const __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(both), _mm256_extractf128_pd(both, 1));
      return _mm_cvtsd_f64(pair) + _mm_cvtsd_f64(_mm_unpackhi_pd(pair, pair));
    }
  };

  static void transpose(Float (&r)[kLanes]) {
    Float t[kLanes];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
      t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const Float low = _mm256_permute2f128_ps(r[k], r[4 + k], 0x20);
      r[4 + k] = _mm256_permute2f128_ps(r[k], r[4 + k], 0x31);
      r[k] = low;
    }
  }

 private:
  static Float power_of_two(Int n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, set_int(127)), 23));
  }
  static Float widen(__m128i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)); }
  static __m128i narrow(Float v) {
    const Int bits = _mm256_castps_si256(v);
    const Int odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), set_int(1));
    const Int rounded = _mm256_srli_epi32(add(bits, add(odd, set_int(0x7FFF))), 16);
    const Int nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const Int chosen = _mm256_blendv_epi8(rounded, set_int(0x7FC0), nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
  }
};

}  // namespace
}  // namespace strake::kernels
