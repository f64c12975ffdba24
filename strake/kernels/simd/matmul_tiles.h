#pragma once

#include "strake/kernels/simd/avx512_bf16.h"
#include "strake/kernels/simd/matmul.h"
#include "strake/kernels/simd/matmul_tile_rows.h"
#include "strake/kernels/simd/tile_walk.h"

// bf16 products of tiles: panels of B are those of AVX512-BF16, A is packed row by row or read where it lies, and a
// tile's sums go on from block to block of the depth, which is taken in steps of 16 units.
namespace strake::kernels {
namespace {

constexpr int64_t kTiledBlockBytes = int64_t{1} << 20;  // of A at a time, if not said otherwise
// A depth of more steps is walked through in blocks, so that enough rows stay in the second-level cache; the sums of
// all panels wait there meanwhile.
constexpr int64_t kWholeDepthSteps = 48;
constexpr int64_t kDepthBlockSteps = 24;
constexpr int64_t kKeptSumsFloats = int64_t{352} << 10;  // of 2 MiB, which every processor with AMX has
constexpr int64_t kLeastKeptTiles = 4;                   // of rows

struct Range {
  int64_t begin;
  int64_t end;
};

// How a part is walked through and its scratch cut, in floats.
struct TiledScratch {
  template <typename Out>
  explicit TiledScratch(const MatmulPart<BFloat16, Out>& part)
      : first_step(begin_of(part.piece, 0)),
        steps(begin_of(part.piece, part.piece.blocks) - first_step),
        panels(part.panel_end - part.panel_begin),
        depth_steps(steps_at_a_time(part)),
        keeps_sums(part.sums != nullptr || depth_steps < steps),
        row_floats(row_of(depth_steps)) {
    int64_t most = tiles_in(part, depth_steps);
    if (keeps_sums && panels > 0) most = smaller(most, pieces_in(0, kKeptSumsFloats, panels * kTileFloats));
    block_rows = smaller(row_tiles(part), most) * kTiledRows;
    sums = block_rows * row_floats;
    const bool has_place = part.sums != nullptr;
    total = sums + (has_place ? 0 : keeps_sums ? block_rows * panels * kTiledColumns : kWalkSums);
  }

  template <typename Out>
  int64_t steps_at_a_time(const MatmulPart<BFloat16, Out>& part) const {
    if (part.sums == nullptr) {
      if (steps <= kWholeDepthSteps || tiles_in(part, steps) >= row_tiles(part)) return steps;
      if (panels == 0 || panels * kLeastKeptTiles * kTileFloats > kKeptSumsFloats) return steps;
    }
    return smaller(steps, equal_pieces(steps, kDepthBlockSteps));
  }

  static int64_t begin_of(const PanelPiece& piece, int64_t block) {
    return DepthBlocks(units_of<TiledPairs>(piece.depth)).begin(piece.first_block + block) / kStepUnits;
  }
  template <typename Out>
  static int64_t row_tiles(const MatmulPart<BFloat16, Out>& part) {
    return (part.row_end - part.row_begin + kTiledRows - 1) / kTiledRows;
  }
  template <typename Out>
  static int64_t tiles_in(const MatmulPart<BFloat16, Out>& part, int64_t steps) {
    return pieces_in(part.blocks.rows_bytes, kTiledBlockBytes, kTiledRows * row_of(steps) * 4);
  }
  // A cache line more than it is long: a tile's rows would share one set of the cache if that were a power of two.
  static int64_t row_of(int64_t steps) { return steps * kStepUnits + kStepUnits; }

  int64_t first_step;  // of the piece
  int64_t steps;
  int64_t panels;
  int64_t depth_steps;  // at a time
  bool keeps_sums;
  int64_t row_floats;
  int64_t block_rows = 0;
  int64_t sums = 0, total = 0;
};

template <class Tiles, typename Out>
class TiledPart {
 public:
  explicit TiledPart(const MatmulPart<BFloat16, Out>& part)
      : part_(part), cut_(part), ends_depth_(part.piece.first_block + part.piece.blocks == blocks_of(part.piece)) {}

  void run() {
    with_value(part_.args.result, [this](auto value) { this->template walk<decltype(value)>(); });
  }

 private:
  template <class Value>
  struct Sink {
    // A store that waits for its cache line keeps those of the next tile's sums waiting.
    using Rows = RowStore<Avx512Bf16, Value, BFloat16, Out, kTiledRows>;
    const TiledPart& part;
    int64_t first_row = 0;

    int64_t start(const TiledSums& sums, Rows& rows) const {
      const MatmulResult<BFloat16, Out>& result = part.part_.args.result;
      const int64_t columns = smaller(kTiledColumns, part.part_.piece.columns - sums.column);
      const TilePlace at{first_row + sums.row, part.part_.piece.first_column + sums.column, sums.rows, columns};
      const auto* const values = reinterpret_cast<const float*>(sums.sums);
      if (columns == kTiledColumns) {
        rows = Rows(result, at, values);
        return sums.rows;
      }
      store_values<Avx512Bf16, Value>(result, at, values);
      return 0;
    }
  };

  template <class Value>
  void walk() {
    Sink<Value> sink{*this};
    TileWalk<BFloat16Numbers, Tiles, Sink<Value>> walk(part_.scratch + cut_.sums, sink);
    const int64_t rows = equal_pieces(TiledScratch::row_tiles(part_), cut_.block_rows / kTiledRows) * kTiledRows;
    for (int64_t begin = part_.row_begin; begin < part_.row_end; begin += rows) {
      sink.first_row = begin;
      const int64_t end = smaller(begin + rows, part_.row_end);
      Range steps{0, cut_.depth_steps};
      do {  // also without any depth
        walk_panels(walk, {begin, end}, steps);
        steps = {steps.end, smaller(steps.end + cut_.depth_steps, cut_.steps)};
      } while (steps.begin < cut_.steps);
      walk.finish_all();
    }
  }

  static int64_t blocks_of(const PanelPiece& piece) { return DepthBlocks(units_of<TiledPairs>(piece.depth)).count; }

  // Rows of A that a tile can be loaded from stay where they are.
  TiledRows rows_of(const Range& rows, const Range& steps) {
    const Range units{(cut_.first_step + steps.begin) * kStepUnits, (cut_.first_step + steps.end) * kStepUnits};
    const TiledLines packed{reinterpret_cast<const char*>(part_.scratch), cut_.row_floats * 4};
    const int64_t count = rows.end - rows.begin;
    if (!has_tile_rows()) {
      pack_units(rows, units, part_.scratch);
      return packed_rows(packed, count, steps.end - steps.begin);
    }
    pack_units({rows.end - count % kTiledRows, rows.end}, units, part_.scratch);
    const BFloat16* const a = part_.args.a.data + rows.begin * part_.args.a.stride + 2 * units.begin;
    return {{reinterpret_cast<const char*>(a), part_.args.a.stride * 2}, packed, count, steps.end - steps.begin};
  }
  // Tiles can be loaded from where A lies: rows are whole steps, no row of a tile crosses a cache line, and its rows,
  // an odd number of lines apart, do not meet in few sets of a cache, which costs more than packing.
  bool has_tile_rows() const {
    const MatrixOperand<BFloat16>& a = part_.args.a;
    constexpr int64_t kLine = kTileRowBytes / sizeof(BFloat16);
    return a.order == Order::kRows && part_.args.depth % kLine == 0 &&
           reinterpret_cast<uintptr_t>(a.data) % kTileRowBytes == 0 && a.stride % (2 * kLine) == kLine;
  }

  template <class Walk>
  void walk_panels(Walk& walk, const Range& block, const Range& steps) {
    const TiledRows rows = rows_of(block, steps);
    for (int64_t panel = part_.panel_begin; panel < part_.panel_end; ++panel) {
      const float* const b = part_.panels + (panel * cut_.steps + steps.begin) * kStepFloats;
      const float* const next = panel + 1 < part_.panel_end ? b + cut_.steps * kStepFloats : nullptr;
      walk.multiply(rows, {.b = reinterpret_cast<const char*>(b),
                           .next = reinterpret_cast<const char*>(next),
                           .column = panel * kTiledColumns,
                           .sums = reinterpret_cast<char*>(sums_of(panel, block)),
                           .sums_stride = sums_stride() * 4,
                           .is_first = part_.piece.first_block == 0 && steps.begin == 0,
                           .is_last = ends_depth_ && steps.end == cut_.steps});
    }
  }

  // Where the sums of a panel's row tiles are kept, from the block's first on, or null.
  float* sums_of(int64_t panel, const Range& block) const {
    if (!cut_.keeps_sums) return nullptr;
    if (part_.sums != nullptr) return part_.sums + block.begin / kTiledRows * sums_stride() + panel * kTileFloats;
    return part_.scratch + cut_.sums + (panel - part_.panel_begin) * kTileFloats;
  }
  int64_t sums_stride() const {
    if (part_.sums == nullptr) return cut_.panels * kTileFloats;
    return (part_.piece.columns + kTiledColumns - 1) / kTiledColumns * kTileFloats;
  }

  void pack_units(const Range& rows, const Range& units, float* to) {
    const PanelSource<BFloat16> all{part_.args.a.data, part_.args.a.stride, part_.args.a.order == Order::kRows};
    for (int64_t row = rows.begin; row < rows.end; row += kTileSide) {
      const PanelShape shape{smaller(kTileSide, rows.end - row), cut_.row_floats, part_.args.depth};
      pack_tile_rows(all.from(row), shape, units.begin, units.end, to + (row - rows.begin) * cut_.row_floats);
    }
  }

  const MatmulPart<BFloat16, Out>& part_;
  const TiledScratch cut_;
  const bool ends_depth_;
};

template <typename Out>
int64_t tiled_scratch(const MatmulPart<BFloat16, Out>& part) {
  return TiledScratch(part).total;
}

template <class Tiles, typename Out>
void tiled_multiply(const MatmulPart<BFloat16, Out>& part) {
  TiledPart<Tiles, Out>(part).run();
}

template <class Tiles, typename Out>
constexpr MatmulRung<BFloat16, Out> tiled_rung(Isa isa) {
  return {isa,
          {kTiledRows, kTiledColumns, TiledPairs::kDepthPerUnit, TiledPairs::kDepthStep},
          &pack_right_panels<TiledPairs, BFloat16>,
          &tiled_scratch<Out>,
          &tiled_multiply<Tiles, Out>};
}

}  // namespace
}  // namespace strake::kernels
