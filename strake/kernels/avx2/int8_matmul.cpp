#include "strake/kernels/simd/int8_matmul.h"

#include "strake/kernels/simd/avx2.h"

namespace strake::kernels::avx2 {
namespace {

// A unit is two numbers, widened to 16 bits: VPMADDUBSW would add products of 8-bit ones with saturation.
struct Int8Pairs {
  using Simd = Avx2;
  using Int = __m256i;
  static constexpr int kTileRows = 6;  // 12 sums, 2 vectors of B, one of A and one of products in 16 registers
  static constexpr int kDepthPerUnit = 2;
  static constexpr int kDepthStep = 2;
  static constexpr int32_t kOffset = 0;

  static Int load_sums(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store_sums(int32_t* p, Int sums) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), sums); }
  static __m256 sums_as_float(const int32_t* p) { return _mm256_cvtepi32_ps(load_sums(p)); }
  static Int broadcast(const float* unit) { return _mm256_castps_si256(_mm256_broadcast_ss(unit)); }
  static __m256 along(const int8_t* p, int64_t /*left*/) { return _mm256_castsi256_ps(load_columns(p)); }
  static Int load_columns(const int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Int multiply_add(Int a, Int b, Int sum) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }

  static uint32_t largest_magnitude(const BFloat16* x, int64_t count, const BFloat16* soon) {
    const Int magnitude = _mm256_set1_epi16(0x7FFF);
    Int largest = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      if (i % 64 == 0) __builtin_prefetch(soon + i / 2);
      const Int bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
      largest = _mm256_max_epi16(largest, _mm256_and_si256(bits, magnitude));
    }
    alignas(32) uint16_t each[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(each), largest);
    uint32_t most = 0;
    for (const uint16_t one : each) most = one > most ? one : most;
    for (; i < count; ++i) most = (x[i].bits & 0x7FFFU) > most ? x[i].bits & 0x7FFFU : most;
    return most;
  }

  // to[i] = x[i] * inverse, rounded; may write up to the next multiple of 8.
  static void quantize(const BFloat16* x, int64_t count, float inverse, int8_t* to, const BFloat16* soon) {
    const __m256 factor = _mm256_set1_ps(inverse);
    const __m256 addend = _mm256_set1_ps(kRoundingAddend);
    for_each_vector<Avx2>(count, [&](int64_t i, auto lanes) {
      if (i % 64 == 0) __builtin_prefetch(soon + i / 2);
      const Int sum = _mm256_castps_si256(Avx2::fma(Avx2::load(x + i, lanes), factor, addend));
      const Int q = _mm256_sub_epi32(sum, _mm256_castps_si256(addend));
      const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to + i), _mm_packs_epi16(words, words));
    });
  }
};

}  // namespace

const Int8MatmulRung<BFloat16> kInt8Matmul = int8_rung<Int8Pairs, BFloat16>(Isa::kAvx2);
const Int8MatmulRung<float> kInt8MatmulToFloat = int8_rung<Int8Pairs, float>(Isa::kAvx2);

}  // namespace strake::kernels::avx2
