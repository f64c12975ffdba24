#include "strake/kernels/simd/int8_matmul.h"

#include "strake/kernels/simd/int8_avx512.h"

namespace strake::kernels::avx512 {
namespace {

// A unit is two numbers, widened to 16 bits: VPMADDUBSW would add products of 8-bit ones with saturation.
struct Int8Pairs : Int8Avx512 {
  static constexpr int kDepthPerUnit = 2;
  static constexpr int kDepthStep = 2;
  static constexpr int32_t kOffset = 0;

  static __m512 along(const int8_t* p, int64_t /*left*/) { return _mm512_castsi512_ps(load_columns(p)); }
  static Int load_columns(const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Int multiply_add(Int a, Int b, Int sum) { return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)); }
};

}  // namespace

const Int8MatmulRung<BFloat16> kInt8Matmul = int8_rung<Int8Pairs, BFloat16>(Isa::kAvx512);
const Int8MatmulRung<float> kInt8MatmulToFloat = int8_rung<Int8Pairs, float>(Isa::kAvx512);

}  // namespace strake::kernels::avx512
