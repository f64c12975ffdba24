#pragma once

#include <optional>

#include "strake/kernels/simd/avx512_bf16.h"
#include "strake/kernels/simd/matmul.h"
#include "strake/kernels/simd/matmul_tile_rows.h"
#include "strake/kernels/simd/tile_walk.h"

// bf16 products of tiles: panels of B are those of AVX512-BF16, A is packed row by row or read where it lies, and a
// tile's sums go on from block to block of the depth. A block is taken in steps of 16 units, with the last one filled
// with 0.
namespace strake::kernels {
namespace {

constexpr int64_t kTiledBlockBytes = int64_t{1} << 20;  // of A at a time, if not said otherwise
constexpr int64_t kStepFloats = kStepUnits * kTiledColumns;
constexpr int64_t kTileFloats = kTiledRows * kTiledColumns;
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

// How a part's scratch is cut, in floats.
struct TiledScratch {
  template <typename Out>
  explicit TiledScratch(const MatmulPart<BFloat16, Out>& part)
      : blocks(units_of<BFloat16Pairs>(part.args.depth)),
        block_steps((blocks.size + kStepUnits - 1) / kStepUnits),
        has_tails(blocks.size % kStepUnits != 0 || blocks.units % kStepUnits != 0),
        walks(!has_tails && part.sums == nullptr),
        panels(part.panel_end - part.panel_begin),
        depth_steps(steps_at_a_time(part)),
        keeps_sums(depth_steps < part.piece.blocks * block_steps),
        row_floats(row_of(depth_steps)) {
    int64_t most = tiles_in(part, depth_steps);
    if (keeps_sums) most = smaller(most, kKeptSumsFloats / (panels * kTileFloats));
    block_rows = smaller(row_tiles(part), most) * kTiledRows;
    tails = block_rows * row_floats;
    sums = tails + (has_tails ? part.piece.blocks * kStepFloats : 0);
    total = sums + (keeps_sums ? block_rows * panels * kTiledColumns : part.sums == nullptr ? kWalkSums : 0);
  }

  template <typename Out>
  int64_t steps_at_a_time(const MatmulPart<BFloat16, Out>& part) const {
    const int64_t all = part.piece.blocks * block_steps;
    if (!walks || all <= kWholeDepthSteps || tiles_in(part, all) >= row_tiles(part)) return all;
    if (panels == 0 || panels * kLeastKeptTiles * kTileFloats > kKeptSumsFloats) return all;
    return equal_pieces(all, kDepthBlockSteps);
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

  DepthBlocks blocks;
  int64_t block_steps;
  bool has_tails;
  bool walks;  // all of the depth is here, in whole steps
  int64_t panels;
  int64_t depth_steps;  // at a time
  bool keeps_sums;
  int64_t row_floats;
  int64_t block_rows = 0;
  int64_t tails = 0, sums = 0, total = 0;
};

template <class Tiles, typename Out>
class TiledPart {
 public:
  explicit TiledPart(const MatmulPart<BFloat16, Out>& part)
      : part_(part),
        cut_(part),
        panels_((part.piece.columns + kTiledColumns - 1) / kTiledColumns),
        first_unit_(cut_.blocks.begin(part.piece.first_block)),
        units_(cut_.blocks.begin(part.piece.first_block + part.piece.blocks) - first_unit_) {}

  void run() {
    if (cut_.walks) {
      return with_value(part_.args.result, [this](auto value) { this->template walk<decltype(value)>(); });
    }
    const int64_t rows = block_rows();
    tiles_.emplace();
    for (int64_t row = part_.row_begin; row < part_.row_end; row += rows) {
      const int64_t end = smaller(row + rows, part_.row_end);
      pack_rows({row, end});
      for (int64_t panel = part_.panel_begin; panel < part_.panel_end; ++panel) multiply_panel(row, end, panel);
    }
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
    const int64_t rows = block_rows();
    const int64_t steps = units_ / kStepUnits;
    for (int64_t begin = part_.row_begin; begin < part_.row_end; begin += rows) {
      sink.first_row = begin;
      const int64_t end = smaller(begin + rows, part_.row_end);
      Range at_a_time{0, cut_.depth_steps};
      do {  // also without any depth
        walk_panels(walk, rows_of({begin, end}, at_a_time), at_a_time);
        at_a_time = {at_a_time.end, smaller(at_a_time.end + cut_.depth_steps, steps)};
      } while (at_a_time.begin < steps);
      walk.finish_all();
    }
  }

  // Rows of A that a tile can be loaded from stay where they are.
  TiledRows rows_of(const Range& rows, const Range& steps) {
    const Range units{first_unit_ + steps.begin * kStepUnits, first_unit_ + steps.end * kStepUnits};
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
  // Tiles can be loaded from where A lies: no row of one crosses a cache line, and its rows, an odd number of lines
  // apart, do not meet in few sets of a cache, which costs more than packing.
  bool has_tile_rows() const {
    const MatrixOperand<BFloat16>& a = part_.args.a;
    constexpr int64_t kLine = kTileRowBytes / sizeof(BFloat16);
    return a.order == Order::kRows && reinterpret_cast<uintptr_t>(a.data) % kTileRowBytes == 0 &&
           a.stride % (2 * kLine) == kLine;
  }

  template <class Walk>
  void walk_panels(Walk& walk, const TiledRows& rows, const Range& steps) {
    const int64_t tiles = (rows.rows + kTiledRows - 1) / kTiledRows;
    for (int64_t panel = part_.panel_begin; panel < part_.panel_end; ++panel) {
      const float* const b = part_.panels + panel * units_ * kTiledColumns + steps.begin * kStepFloats;
      const float* const next = panel + 1 < part_.panel_end ? b + units_ * kTiledColumns : nullptr;
      float* const sums = part_.scratch + cut_.sums + (panel - part_.panel_begin) * tiles * kTileFloats;
      walk.multiply(rows, {.b = reinterpret_cast<const char*>(b),
                           .next = reinterpret_cast<const char*>(next),
                           .column = panel * kTiledColumns,
                           .sums = cut_.keeps_sums ? reinterpret_cast<char*>(sums) : nullptr,
                           .is_first = steps.begin == 0,
                           .is_last = steps.end * kStepUnits == units_});
    }
  }

  int64_t block_rows() const {
    return equal_pieces(TiledScratch::row_tiles(part_), cut_.block_rows / kTiledRows) * kTiledRows;
  }

  int64_t block_begin(int64_t block) const { return cut_.blocks.begin(part_.piece.first_block + block) - first_unit_; }
  int64_t block_units(int64_t block) const { return block_begin(block + 1) - block_begin(block); }

  void pack_rows(const Range& rows) {
    for (int64_t block = 0; block < part_.piece.blocks; ++block) {
      const int64_t unit = first_unit_ + block_begin(block);
      pack_units(rows, {unit, unit + block_units(block)}, part_.scratch + block * cut_.block_steps * kStepUnits);
    }
  }

  void pack_units(const Range& rows, const Range& units, float* to) {
    const PanelSource<BFloat16> all{part_.args.a.data, part_.args.a.stride, part_.args.a.order == Order::kRows};
    for (int64_t row = rows.begin; row < rows.end; row += kTileSide) {
      const PanelShape shape{smaller(kTileSide, rows.end - row), cut_.row_floats, part_.args.depth};
      pack_tile_rows(all.from(row), shape, units.begin, units.end, to + (row - rows.begin) * cut_.row_floats);
    }
  }

  // The last steps of a panel's blocks: what lies behind them in the panel must not be multiplied, not even by 0.
  void copy_tails(const float* panel) {
    for (int64_t block = 0; block < part_.piece.blocks; ++block) {
      const int64_t whole = block_units(block) / kStepUnits * kStepUnits;
      const float* const from = panel + (block_begin(block) + whole) * kTiledColumns;
      float* const to = part_.scratch + cut_.tails + block * kStepFloats;
      for (int64_t i = 0; i < kStepFloats; i += 16) {
        const bool inside = i < (block_units(block) - whole) * kTiledColumns;
        _mm512_storeu_ps(to + i, inside ? _mm512_loadu_ps(from + i) : _mm512_setzero_ps());
      }
    }
  }

  void multiply_panel(int64_t begin, int64_t end, int64_t panel) {
    const float* const b = part_.panels + panel * units_ * kTiledColumns;
    if (cut_.has_tails) copy_tails(b);
    const bool last = part_.piece.first_block + part_.piece.blocks == cut_.blocks.count;
    const int64_t column = part_.piece.first_column + panel * kTiledColumns;
    const int64_t columns = smaller(kTiledColumns, part_.piece.first_column + part_.piece.columns - column);
    for (int64_t row = begin; row < end; row += kTiledRows) {
      float* const sums = part_.sums == nullptr
                              ? part_.scratch + cut_.sums
                              : part_.sums + (row / kTiledRows * panels_ + panel) * kTiledRows * kTiledColumns;
      const int64_t rows = smaller(kTiledRows, end - row);
      continued_ = part_.piece.first_block > 0;
      multiply_tile(rows, part_.scratch + (row - begin) * cut_.row_floats, b, sums);
      if (last) store_sums<Avx512Bf16>(part_.args.result, {row, column, rows, columns}, sums);
    }
  }

  void multiply_tile(int64_t rows, const float* a, const float* b, float* sums) {
    if (!cut_.has_tails) return multiply_steps(rows, a, b, units_ / kStepUnits, sums);
    for (int64_t block = 0; block < part_.piece.blocks; ++block) {
      const int64_t steps = block_units(block) / kStepUnits;
      const float* const of_block = a + block * cut_.block_steps * kStepUnits;
      multiply_steps(rows, of_block, b + block_begin(block) * kTiledColumns, steps, sums);
      if (block_units(block) % kStepUnits == 0) continue;
      const float* const tail = part_.scratch + cut_.tails + block * kStepFloats;
      multiply_steps(rows, of_block + steps * kStepUnits, tail, 1, sums);
    }
  }

  // Also without a step: then sums that are not continued become 0.
  void multiply_steps(int64_t rows, const float* a, const float* b, int64_t steps, float* sums) {
    const TiledProduct product{.a = a,
                               .a_stride = cut_.row_floats * 4,
                               .b = b,
                               .steps = steps,
                               .sums = continued_ ? sums : nullptr,
                               .leaving = nullptr};
    continued_ = true;
    const auto nothing = [](int) {};
    const auto none_left = [] {};
    if (rows > kTileSide) {
      multiply_tiles<BFloat16Numbers, true>(*tiles_, product, nothing, none_left);
    } else {
      multiply_tiles<BFloat16Numbers, false>(*tiles_, product, nothing, none_left);
    }
    store_sums_of(*tiles_, sums);
  }

  const MatmulPart<BFloat16, Out>& part_;
  TiledScratch cut_;
  int64_t panels_, first_unit_, units_;
  bool continued_ = false;
  std::optional<Tiles> tiles_;
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
          {kTiledRows, kTiledColumns, BFloat16Pairs::kDepthPerUnit},
          &pack_right_panels<BFloat16Pairs, BFloat16>,
          &tiled_scratch<Out>,
          &tiled_multiply<Tiles, Out>};
}

}  // namespace
}  // namespace strake::kernels
