#include "benchmarks/register_peak.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>

#include "strake/core/cpu_features.h"

namespace strake::benchmarks {
namespace {

constexpr int kSums = 16;  // hides a latency of 8 cycles with two units
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

[[gnu::target("avx2,fma")]] void fp32_rounds_avx2() {
  __m256 sums[kSums / 2 + 4];
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
  return cpu_features().avx2 ? best_flops((kSums / 2 + 4) * 8 * 2, fp32_rounds_avx2) : 0;
}

double bf16_register_peak() {
  return cpu_features().avx512_bf16 ? best_flops(kSums * 32 * 2, bf16_rounds_avx512) : fp32_register_peak();
}

}  // namespace strake::benchmarks
