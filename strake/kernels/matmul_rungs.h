#pragma once

#include "strake/kernels/matmul.h"

namespace strake::kernels {

// Operands are packed as units of 32 bits: a number as fp32, or two bf16 that follow each other in depth.
inline constexpr int64_t kDepthBlock = 512;  // units

// How the depth is cut: of several blocks all but the last have whole steps of 16 units, as tiles take them. Depends on
// nothing else, for the order of additions does not either. Functions are inlined because objects of every instruction
// set use them.
struct DepthBlocks {
  [[gnu::always_inline]] explicit DepthBlocks(int64_t all_units)
      : units(all_units),
        count(units <= kDepthBlock ? 1 : (units + kDepthBlock - 1) / kDepthBlock),
        size(count == 1 ? units : (units + 16 * count - 1) / (16 * count) * 16) {}
  [[gnu::always_inline]] int64_t begin(int64_t block) const { return block * size < units ? block * size : units; }
  int64_t units, count, size;
};

// The smallest pieces of work.
struct MatmulTile {
  int64_t rows;
  int64_t columns;         // of a panel of B
  int64_t depth_per_unit;  // 1 or 2
  int64_t depth_step = 1;  // units, of which the depth is filled up to whole ones
};

// A piece of B: panels [columns / tile.columns] of [units, tile.columns] floats; columns beyond the last are undefined.
struct PanelPiece {
  int64_t depth = 0;         // of all of B
  int64_t first_column = 0;  // multiple of tile.columns
  int64_t columns = 0;
  int64_t first_block = 0;  // of the depth
  int64_t blocks = 1;
};

// One thread's part of a product with a piece of B.
template <typename T, typename Out>
struct MatmulPart {
  const Matmul<T, Out>& args;
  PanelPiece piece;
  const float* panels;  // of the piece
  int64_t row_begin;    // multiple of tile.rows
  int64_t row_end;
  int64_t panel_begin;  // of the piece
  int64_t panel_end;
  float* sums;     // [row tiles of args, panels of the piece, a tile], kept from piece to piece of the depth, or
                   // null: the piece has all of it
  float* scratch;  // part_scratch floats
  CacheBlocks blocks = {};
};

template <typename T, typename Out>
struct MatmulRung {
  Isa isa;
  MatmulTile tile;
  // Packs panels [begin, end) of a piece of B.
  void (*pack)(const MatrixOperand<T>& b, const PanelPiece& piece, int64_t begin, int64_t end, float* panels);
  int64_t (*scratch)(const MatmulPart<T, Out>&);  // floats, 64-byte aligned
  void (*multiply)(const MatmulPart<T, Out>&);
  int64_t fewest_rows = 0;  // that are worth going through B for, where threads share rows; 0: they do not
};

namespace reference {
extern const MatmulRung<float, float> kMatmulFloat;
extern const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16;
extern const MatmulRung<BFloat16, float> kMatmulBFloat16ToFloat;
}  // namespace reference
namespace avx2 {
extern const MatmulRung<float, float> kMatmulFloat;
extern const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16;
extern const MatmulRung<BFloat16, float> kMatmulBFloat16ToFloat;
}  // namespace avx2
namespace avx512 {
extern const MatmulRung<float, float> kMatmulFloat;
extern const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16;
extern const MatmulRung<BFloat16, float> kMatmulBFloat16ToFloat;
// With AVX512-BF16.
extern const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16Pairs;
extern const MatmulRung<BFloat16, float> kMatmulBFloat16PairsToFloat;
}  // namespace avx512
namespace amx {
extern const MatmulRung<BFloat16, BFloat16> kMatmulBFloat16;
extern const MatmulRung<BFloat16, float> kMatmulBFloat16ToFloat;
}  // namespace amx

}  // namespace strake::kernels
