#pragma once

#include "strake/kernels/simd/avx512.h"

namespace strake::kernels {
namespace {

// Beside tiles: processors with AMX have AVX512-BF16, too. As their tiles do, its conversion takes denormal numbers as
// 0, and it takes one instruction where exact rounding takes ten, which would keep the tiles waiting.
struct AmxVectors : Avx512 {
  using Avx512::store_two;
  static void store_two(BFloat16* p, Float a, Float b) {
    _mm512_storeu_si512(p, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
  }
  using Avx512::as_stored;
  static Float as_stored(const BFloat16*, Float v) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v))), 16));
  }
};

}  // namespace
}  // namespace strake::kernels
