#include "strake/kernels/simd/int8_avx512.h"
#include "strake/kernels/simd/int8_matmul.h"

namespace strake::kernels::avx512 {
namespace {

// A unit is four numbers of 8 bits, of A as unsigned ones: x + 128.
struct Int8Quads : Int8Avx512 {
  static constexpr int kDepthPerUnit = 4;
  static constexpr int kDepthStep = 4;
  static constexpr int32_t kOffset = 128;

  static __m512 along(const int8_t* p, int64_t /*left*/) {
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128)));
  }
  static Int load_columns(const int8_t* p) { return _mm512_loadu_si512(p); }
  static Int multiply_add(Int a, Int b, Int sum) { return _mm512_dpbusd_epi32(sum, a, b); }
};

}  // namespace

const Int8MatmulRung<BFloat16> kInt8MatmulVnni = int8_rung<Int8Quads, BFloat16>(Isa::kAvx512Vnni);
const Int8MatmulRung<float> kInt8MatmulVnniToFloat = int8_rung<Int8Quads, float>(Isa::kAvx512Vnni);

}  // namespace strake::kernels::avx512
