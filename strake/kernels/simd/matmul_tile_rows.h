#pragma once

#include "strake/kernels/simd/bfloat16_pairs.h"
#include "strake/kernels/simd/matmul_pack.h"
#include "strake/kernels/simd/tiles.h"

// How bf16 is packed for tiles: panels of B filled up with 0 to whole steps, rows of A from an operand of either order.
namespace strake::kernels {
namespace {

constexpr int64_t kStepUnits = kTileSide;
constexpr int64_t kStepFloats = kStepUnits * kTiledColumns;  // of a panel of B
constexpr int64_t kTileFloats = kTiledRows * kTiledColumns;  // of sums

struct TiledPairs : BFloat16Pairs {
  static constexpr int64_t kDepthStep = kStepUnits;
};

// Packs up to 16 rows of units [begin, end); other rows, and units up to the next multiple of a step, are 0.
inline void pack_contiguous_rows(const PanelSource<BFloat16>& from, const PanelShape& shape, int64_t begin, int64_t end,
                                 float* to) {
  const int64_t depth_end = smaller(2 * end, shape.depth);
  for (int64_t i = 0; i < kTileSide; ++i) {
    const BFloat16* const row = from.data + i * from.stride;
    float* const line = to + i * shape.pitch;
    for (int64_t unit = begin; unit < end; unit += kStepUnits) {
      const bool none = i >= shape.lines;
      const __m512 step = none ? _mm512_setzero_ps() : BFloat16Pairs::along(row + 2 * unit, depth_end - 2 * unit);
      _mm512_storeu_ps(line + unit - begin, step);
    }
  }
}

inline void pack_contiguous_depths(const PanelSource<BFloat16>& from, const PanelShape& shape, int64_t begin,
                                   int64_t end, float* to) {
  const int64_t depth_end = smaller(2 * end, shape.depth);
  const auto pairs = [&](int64_t k, auto lanes) {
    return BFloat16Pairs::across(from.data + k * from.stride, from.stride, depth_end - k, lanes);
  };
  for (int64_t unit = begin; unit < end; unit += kStepUnits, to += kStepUnits) {
    __m512 block[kTileSide];
    for (int64_t i = 0; i < kTileSide; ++i) {
      const int64_t k = 2 * (unit + i);
      if (k >= depth_end) {
        block[i] = _mm512_setzero_ps();
      } else {
        block[i] = shape.lines == kTileSide ? pairs(k, Full{}) : pairs(k, Part{static_cast<int>(shape.lines)});
      }
    }
    Avx512::transpose(block);
    for (int64_t i = 0; i < kTileSide; ++i) _mm512_storeu_ps(to + i * shape.pitch, block[i]);
  }
}

inline void pack_tile_rows(const PanelSource<BFloat16>& from, const PanelShape& shape, int64_t begin, int64_t end,
                           float* to) {
  if (from.along_depth) return pack_contiguous_rows(from, shape, begin, end, to);
  pack_contiguous_depths(from, shape, begin, end, to);
}

}  // namespace
}  // namespace strake::kernels
