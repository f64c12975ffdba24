#pragma once

#include "strake/kernels/int8_matmul.h"

namespace strake::kernels {

// Added to a small number it leaves an integer, the nearest and of two the even one, in the sum's lowest bits.
inline constexpr float kRoundingAddend = 12'582'912;  // 1.5 * 2^23

// Quantized rows are filled up with 0 to whole cache lines.
constexpr int64_t filled_bytes(int64_t depth) { return (depth + 63) / 64 * 64; }

// How a rung packs. A panel of B is [units, columns of the tile, depth_per_unit] numbers; depths up to the next
// multiple of depth_step, and columns beyond the last, are 0.
struct Int8Tile {
  int64_t rows;
  int64_t columns;
  int64_t depth_per_unit;
  int64_t depth_step;
  int32_t offset;  // added to activations when they are packed, which makes them unsigned
};

template <typename Out>
struct Int8MatmulPart {
  const Int8Matmul<Out>& args;
  const QuantizedMatrix& b;
  float* scratch;
  int64_t column_begin;  // multiple of tile.columns
  int64_t column_end;
};

template <typename Out>
struct Int8MatmulRung {
  Isa isa;
  Int8Tile tile;
  int64_t (*scratch)(int64_t rows, const QuantizedMatrix& b);  // floats; grows with the rows
  int64_t (*multiply)(const Int8MatmulPart<Out>&);
  void (*quantize)(const RowsToQuantize&, const QuantizedRows&);
};

namespace reference {
extern const Int8MatmulRung<BFloat16> kInt8Matmul;
extern const Int8MatmulRung<float> kInt8MatmulToFloat;
}  // namespace reference
namespace avx2 {
extern const Int8MatmulRung<BFloat16> kInt8Matmul;
extern const Int8MatmulRung<float> kInt8MatmulToFloat;
}  // namespace avx2
namespace avx512 {
extern const Int8MatmulRung<BFloat16> kInt8Matmul;
extern const Int8MatmulRung<float> kInt8MatmulToFloat;
// With AVX512-VNNI.
extern const Int8MatmulRung<BFloat16> kInt8MatmulVnni;
extern const Int8MatmulRung<float> kInt8MatmulVnniToFloat;
}  // namespace avx512
namespace amx {
extern const Int8MatmulRung<BFloat16> kInt8Matmul;
extern const Int8MatmulRung<float> kInt8MatmulToFloat;
}  // namespace amx

}  // namespace strake::kernels
