#pragma once

#include "strake/kernels/simd/avx512_bf16.h"
#include "strake/kernels/simd/int8_avx512.h"
#include "strake/kernels/simd/int8_matmul.h"
#include "strake/kernels/simd/tile_walk.h"

namespace strake::kernels {
namespace {

// int8 products of tiles; quantization and what follows a product are those of AVX-512.
struct Int8TileUnits : Int8Avx512 {
  using Simd = Avx512Bf16;
  static constexpr int kTileRows = kTiledRows;
  static constexpr int kDepthPerUnit = 4;
  static constexpr int kDepthStep = kTileRowBytes;
  static constexpr int32_t kOffset = 0;
};

// Multiplies quantized rows as they lie: the rows of a tile are an odd number of cache lines apart, or they would share
// one set of the cache.
template <class Tiles>
class Int8Tiler {
 public:
  static constexpr int64_t kSums = kWalkSums;
  static constexpr bool kPacks = false;
  static_assert(kRowsTogether % kTiledRows == 0);

  template <Activation kKind, class Results>
  class Walk {
   public:
    Walk(int32_t* sums, const Results& results)
        : sink_{results}, walk_(sums, sink_), stride_(quantized_stride(results.b.depth())) {}
    void multiply(const Int8Rows& block, const Int8Panel& panel) {
      const TiledLines lines{reinterpret_cast<const char*>(block.a), stride_};
      walk_.multiply(packed_rows(lines, block.rows, block.units / kTileSide),
                     {.b = reinterpret_cast<const char*>(panel.b),
                      .next = reinterpret_cast<const char*>(panel.next),
                      .column = panel.column});
    }
    void finish_all() { walk_.finish_all(); }

   private:
    struct Sink {
      using Rows = Int8RowStore<Int8TileUnits, kKind, typename Results::Out, kTiledRows>;
      const Results& results;

      int64_t start(const TiledSums& sums, Rows& rows) const {
        const auto tile = results.of({reinterpret_cast<const int32_t*>(sums.sums), sums.row, sums.column, sums.rows});
        if (tile.columns == kTiledColumns) {
          rows = Rows(tile);
          return tile.rows;
        }
        store_dequantized<Int8TileUnits, kKind>(tile);
        return 0;
      }
    };
    Sink sink_;
    TileWalk<Int8Numbers, Tiles, Sink> walk_;
    const int64_t stride_;
  };
};

}  // namespace
}  // namespace strake::kernels
