#include "strake/kernels/simd/bfloat16_pairs.h"
#include "strake/kernels/simd/matmul.h"

namespace strake::kernels::avx512 {
namespace {

struct Pairs : BFloat16Pairs {
  static constexpr int kTileRows = 12;
  static constexpr int kRowTiles = 12;

  static Float multiply_add(Float a, Float b, Float sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

}  // namespace

const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16Pairs = matmul_rung<Pairs, BFloat16, BFloat16>(Isa::kAvx512Bf16);
const MatmulRung<BFloat16, float> kMatmulBFloat16PairsToFloat = matmul_rung<Pairs, BFloat16, float>(Isa::kAvx512Bf16);

}  // namespace strake::kernels::avx512
