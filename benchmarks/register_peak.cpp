#include "benchmarks/register_peak.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>

#include "strake/core/cpu_features.h"

namespace strake::benchmarks {
namespace {

constexpr int kSums = 16;      // hides a latency of 8 cycles with two units
constexpr int kSumsAvx2 = 12;  // of sixteen registers
constexpr int kRounds = 20'000;

template <typename Round>
double best_flops(double flops_per_round, const Round& rounds) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int trial = 0; trial < 20; ++trial) {
    const auto start = Clock::now();
    rounds();
    const std::chrono::duration<double> seconds = Clock::now() - start;
    best = std::max(best, flops_per_round * kRounds / seconds.count());
  }
  return best;
}

// The factor keeps sums of growing size away from infinity: x -> x / 2 + 1.
[[gnu::target("avx512f")]] void fp32_rounds_avx512() {
  __m512 sums[kSums];
#pragma GCC unroll 16
  for (__m512& sum : sums) sum = _mm512_set1_ps(1.7F);
  const __m512 factor = _mm512_set1_ps(0.515625F);
  const __m512 addend = _mm512_set1_ps(0.9375F);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) {
      sums[s] = _mm512_fmadd_ps(sums[s], factor, addend);
      __asm__ volatile("" : "+v"(sums[s]));
    }
  }
}

[[gnu::target("avx512f,avx512bf16")]] void bf16_rounds_avx512() {
  __m512 sums[kSums];
#pragma GCC unroll 16
  for (__m512& sum : sums) sum = _mm512_set1_ps(1.7F);
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3F9D3FB3));
  const auto b = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3FB53F91));
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) {
      sums[s] = _mm512_dpbf16_ps(sums[s], a, b);
      __asm__ volatile("" : "+v"(sums[s]));
    }
  }
}

[[gnu::target("avx512f,avx512vnni")]] void int8_rounds_avx512_vnni() {
  __m512i sums[kSums];
#pragma GCC unroll 16
  for (__m512i& sum : sums) sum = _mm512_set1_epi32(0x2F3D4B59);
  const __m512i a = _mm512_set1_epi32(0x6F9D8FB3);
  const __m512i b = _mm512_set1_epi32(0x5FB53F91);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) {
      sums[s] = _mm512_dpbusd_epi32(sums[s], a, b);
      __asm__ volatile("" : "+v"(sums[s]));
    }
  }
}

// Products of pairs of 16-bit numbers, and their addition.
[[gnu::target("avx2")]] void int8_rounds_avx2() {
  __m256i sums[kSumsAvx2];
#pragma GCC unroll 12
  for (__m256i& sum : sums) sum = _mm256_set1_epi32(0x2F3D4B59);
  __m256i a = _mm256_set1_epi32(0x006F009D);
  const __m256i b = _mm256_set1_epi32(0x005F0091);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      __asm__ volatile("" : "+x"(a));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
      __asm__ volatile("" : "+x"(sum));
    }
  }
}

[[gnu::target("avx512f,avx512bw")]] void int8_rounds_avx512() {
  __m512i sums[kSums];
#pragma GCC unroll 16
  for (__m512i& sum : sums) sum = _mm512_set1_epi32(0x2F3D4B59);
  __m512i a = _mm512_set1_epi32(0x006F009D);
  const __m512i b = _mm512_set1_epi32(0x005F0091);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) {
      __asm__ volatile("" : "+v"(a));
      sums[s] = _mm512_add_epi32(sums[s], _mm512_madd_epi16(a, b));
      __asm__ volatile("" : "+v"(sums[s]));
    }
  }
}

[[gnu::target("avx2,fma")]] void fp32_rounds_avx2() {
  __m256 sums[kSumsAvx2];
#pragma GCC unroll 12
  for (__m256& sum : sums) sum = _mm256_set1_ps(1.7F);
  const __m256 factor = _mm256_set1_ps(0.515625F);
  const __m256 addend = _mm256_set1_ps(0.9375F);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(sum, factor, addend);
      __asm__ volatile("" : "+x"(sum));
    }
  }
}

}  // namespace

double fp32_register_peak() {
  if (cpu_features().avx512) return best_flops(kSums * 16 * 2, fp32_rounds_avx512);
  return cpu_features().avx2 ? best_flops(kSumsAvx2 * 8 * 2, fp32_rounds_avx2) : 0;
}

double bf16_register_peak() {
  return cpu_features().avx512_bf16 ? best_flops(kSums * 32 * 2, bf16_rounds_avx512) : fp32_register_peak();
}

double int8_register_peak() {
  if (cpu_features().avx512_vnni) return best_flops(kSums * 64 * 2, int8_rounds_avx512_vnni);
  if (cpu_features().avx512) return best_flops(kSums * 32 * 2, int8_rounds_avx512);
  return cpu_features().avx2 ? best_flops(kSumsAvx2 * 16 * 2, int8_rounds_avx2) : fp32_register_peak();
}

}  // namespace strake::benchmarks
