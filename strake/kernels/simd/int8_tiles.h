#pragma once

#include "strake/kernels/simd/int8_avx512.h"
#include "strake/kernels/simd/int8_matmul.h"
#include "strake/kernels/simd/tiles.h"

namespace strake::kernels {
namespace {

// int8 products of tiles; quantization and what follows a product are those of AVX-512.
struct Int8TileUnits : Int8Avx512 {
  static constexpr int kTileRows = 2 * kTileSide;
  static constexpr int kDepthPerUnit = 4;
  static constexpr int kDepthStep = kTileRowBytes;
  static constexpr int32_t kOffset = 0;
};

// Rows are packed one after the other, a cache line further apart than they are long: the rows of a tile would share
// one set of the cache if that were a power of two. Rows beyond the last are 0.
template <class Tiles>
class Int8Tiler {
 public:
  static int64_t units_per_row(int64_t units) { return units + 16; }
  static void pack(const int8_t* quantized, int64_t row_bytes, int64_t rows, int64_t units, float* to) {
    const int64_t vectors = units * 4 / 64;
    for (int64_t row = 0; row < Int8TileUnits::kTileRows; ++row, to += units_per_row(units)) {
      for (int64_t i = 0; i < vectors; ++i) {
        const __m512i numbers =
            row < rows ? _mm512_loadu_si512(quantized + row * row_bytes + i * 64) : _mm512_setzero_si512();
        _mm512_storeu_si512(to + i * 16, numbers);
      }
    }
  }
  void multiply(int64_t rows, const Int8TileProduct& product) {
    const TiledProduct tiled{.a = product.a,
                             .a_stride = units_per_row(product.units) * 4,
                             .b = product.b,
                             .steps = product.units / kTileSide,
                             .sums = product.sums,
                             .continued = false};
    if (rows > kTileSide) return multiply_tiles<Int8Numbers, true>(tiles_, tiled);
    multiply_tiles<Int8Numbers, false>(tiles_, tiled);
  }

 private:
  Tiles tiles_;
};

}  // namespace
}  // namespace strake::kernels
