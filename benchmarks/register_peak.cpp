#include "benchmarks/register_peak.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "strake/core/clock.h"
#include "strake/core/cpu_features.h"
#include "strake/core/error.h"
#include "strake/core/threads.h"
#include "strake/kernels/simd/amx.h"

namespace strake::benchmarks {
namespace {

using kernels::Amx;

constexpr int kSums = 16;      // hides a latency of 8 cycles with two units
constexpr int kSumsAvx2 = 12;  // of sixteen registers

double seconds_of(const RegisterLoop& loop, int rounds) {
  const auto start = Clock::now();
  loop.run(rounds);
  return seconds_since(start);
}

// The factor keeps sums of growing size away from infinity: x -> x / 2 + 1.
[[gnu::target("avx512f")]] void fp32_rounds_avx512(int rounds) {
  __m512 sums[kSums];
#pragma GCC unroll 16
  for (__m512& sum : sums) sum = _mm512_set1_ps(1.7F);
  const __m512 factor = _mm512_set1_ps(0.515625F);
  const __m512 addend = _mm512_set1_ps(0.9375F);
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) {
      sums[s] = _mm512_fmadd_ps(sums[s], factor, addend);
      __asm__ volatile("" : "+v"(sums[s]));
    }
  }
}

[[gnu::target("avx512f,avx512bf16")]] void bf16_rounds_avx512(int rounds) {
  __m512 sums[kSums];
#pragma GCC unroll 16
  for (__m512& sum : sums) sum = _mm512_set1_ps(1.7F);
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3F9D3FB3));
  const auto b = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3FB53F91));
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) {
      sums[s] = _mm512_dpbf16_ps(sums[s], a, b);
      __asm__ volatile("" : "+v"(sums[s]));
    }
  }
}

[[gnu::target("avx512f,avx512vnni")]] void int8_rounds_avx512_vnni(int rounds) {
  __m512i sums[kSums];
#pragma GCC unroll 16
  for (__m512i& sum : sums) sum = _mm512_set1_epi32(0x2F3D4B59);
  const __m512i a = _mm512_set1_epi32(0x6F9D8FB3);
  const __m512i b = _mm512_set1_epi32(0x5FB53F91);
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) {
      sums[s] = _mm512_dpbusd_epi32(sums[s], a, b);
      __asm__ volatile("" : "+v"(sums[s]));
    }
  }
}

// Products of pairs of 16-bit numbers, and their addition.
[[gnu::target("avx2")]] void int8_rounds_avx2(int rounds) {
  __m256i sums[kSumsAvx2];
#pragma GCC unroll 12
  for (__m256i& sum : sums) sum = _mm256_set1_epi32(0x2F3D4B59);
  __m256i a = _mm256_set1_epi32(0x006F009D);
  const __m256i b = _mm256_set1_epi32(0x005F0091);
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      __asm__ volatile("" : "+x"(a));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
      __asm__ volatile("" : "+x"(sum));
    }
  }
}

[[gnu::target("avx512f,avx512bw")]] void int8_rounds_avx512(int rounds) {
  __m512i sums[kSums];
#pragma GCC unroll 16
  for (__m512i& sum : sums) sum = _mm512_set1_epi32(0x2F3D4B59);
  __m512i a = _mm512_set1_epi32(0x006F009D);
  const __m512i b = _mm512_set1_epi32(0x005F0091);
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) {
      __asm__ volatile("" : "+v"(a));
      sums[s] = _mm512_add_epi32(sums[s], _mm512_madd_epi16(a, b));
      __asm__ volatile("" : "+v"(sums[s]));
    }
  }
}

[[gnu::target("avx2,fma")]] void fp32_rounds_avx2(int rounds) {
  __m256 sums[kSumsAvx2];
#pragma GCC unroll 12
  for (__m256& sum : sums) sum = _mm256_set1_ps(1.7F);
  const __m256 factor = _mm256_set1_ps(0.515625F);
  const __m256 addend = _mm256_set1_ps(0.9375F);
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(sum, factor, addend);
      __asm__ volatile("" : "+x"(sum));
    }
  }
}

// Four sums of two tiles by two, as products have them.
template <typename Add>
void tile_rounds(int rounds, const Add& add) {
  alignas(64) static const auto numbers = [] {  // as bf16: within [0.5, 2)
    std::array<std::array<uint8_t, 1024>, 4> bytes;
    for (unsigned i = 0; i < 4 * 1024; ++i) {
      const auto noise = static_cast<uint8_t>((i * 2654435761U) >> 19);
      bytes[i / 1024][i % 1024] = i % 2 == 0 ? noise : static_cast<uint8_t>(0x3F - (noise & 0x80));
    }
    return bytes;
  }();
  Amx tiles;
  Amx::zero<0>(), Amx::zero<1>(), Amx::zero<2>(), Amx::zero<3>();
  Amx::load<4>(numbers[0].data(), 64), Amx::load<5>(numbers[1].data(), 64);
  Amx::load<6>(numbers[2].data(), 64), Amx::load<7>(numbers[3].data(), 64);
  for (int i = 0; i < rounds; ++i) add();
}

void int8_rounds_tiles(int rounds) {
  tile_rounds(rounds, [] {
    Amx::add_int8<0, 4, 6>(), Amx::add_int8<1, 4, 7>(), Amx::add_int8<2, 5, 6>(), Amx::add_int8<3, 5, 7>();
  });
}

void bf16_rounds_tiles(int rounds) {
  tile_rounds(rounds, [] {
    Amx::add_bf16<0, 4, 6>(), Amx::add_bf16<1, 4, 7>(), Amx::add_bf16<2, 5, 6>(), Amx::add_bf16<3, 5, 7>();
  });
}

}  // namespace

RegisterLoop fp32_register_loop() {
  if (cpu_features().avx512) return {fp32_rounds_avx512, kSums * 16 * 2};
  if (cpu_features().avx2) return {fp32_rounds_avx2, kSumsAvx2 * 8 * 2};
  throw Error(ErrorKind::kUsage, "no loop on registers for a processor without AVX2");
}

RegisterLoop bf16_register_loop() {
  if (usable(Isa::kAmx)) return {bf16_rounds_tiles, 4 * 2 * 16 * 16 * 32};
  if (cpu_features().avx512_bf16) return {bf16_rounds_avx512, kSums * 32 * 2};
  return fp32_register_loop();
}

RegisterLoop int8_register_loop() {
  if (usable(Isa::kAmx)) return {int8_rounds_tiles, 4 * 2 * 16 * 16 * 64};
  if (cpu_features().avx512_vnni) return {int8_rounds_avx512_vnni, kSums * 64 * 2};
  if (cpu_features().avx512) return {int8_rounds_avx512, kSums * 32 * 2};
  if (cpu_features().avx2) return {int8_rounds_avx2, kSumsAvx2 * 16 * 2};
  return fp32_register_loop();
}

double best_rate(const RegisterLoop& loop) {
  constexpr int kRounds = 20'000;
  double best = 0;
  for (int trial = 0; trial < 20; ++trial) {
    best = std::max(best, kRounds * loop.operations / seconds_of(loop, kRounds));
  }
  return best;
}

double rate_of_all_threads(const RegisterLoop& loop, int rounds) {
  std::vector<double> rates(static_cast<size_t>(num_threads()));
  parallel_for(num_threads(), 1, [&](int64_t thread, int64_t) {
    rates[static_cast<size_t>(thread)] = rounds * loop.operations / seconds_of(loop, rounds);
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace strake::benchmarks
