#pragma once

#include "strake/kernels/matmul_rungs.h"
#include "strake/kernels/simd/lanes.h"
#include "strake/kernels/simd/matmul_pack.h"
#include "strake/kernels/simd/matmul_store.h"
#include "strake/kernels/simd/panel_ahead.h"

// The products themselves: packed panels in, tiles of C out.
namespace strake::kernels {
namespace {

// Columns whose sums are kept while the depth is walked through: the more, the less often A is packed.
constexpr int64_t kGroupColumns = 2304;  // if not said otherwise

constexpr int64_t kFewestRows = 64;  // for which a panel of B comes from the second-level cache in time

template <class U>
constexpr int64_t kTileColumns = int64_t{kTileVectors} * U::Simd::kLanes;

enum class Sums { kNew, kContinued };

// tile[rows, kTileColumns] = or += A B for one block of the depth.
struct TileProduct {
  const float* a;  // [units, rows]
  const float* b;  // [units, kTileColumns]
  int64_t units;
  Sums sums;
  float* tile;
  Ahead<float> ahead = {};  // of B
};

// All floats of the tile are in registers meanwhile.
template <class U, int kRows>
[[gnu::noinline]] void matmul_tile(const TileProduct& product) {
  using S = typename U::Simd;
  const float* a = product.a;
  const float* b = product.b;
  const float* next = product.ahead.next;
  int64_t until_next = product.ahead.every;
  float* const tile = product.tile;
  typename S::Float sum[kRows][kTileVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) sum[r][v] = S::zero();
  }
  for (int64_t units = product.units; units > 0; --units, a += kRows, b += kTileColumns<U>) {
    typename S::Float bs[kTileVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) bs[v] = S::load(b + v * S::kLanes);
    if (--until_next == 0) {
#pragma GCC unroll 2
      for (int i = 0; i < kTileColumns<U>; i += 16) __builtin_prefetch(next + i, 0, 2);
      next += kTileColumns<U>;
      until_next = product.ahead.every;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const typename S::Float factor = S::set(a[r]);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = U::multiply_add(factor, bs[v], sum[r][v]);
    }
  }
  if (product.sums == Sums::kContinued) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = S::load(tile + (r * kTileVectors + v) * S::kLanes) + sum[r][v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) S::store(tile + (r * kTileVectors + v) * S::kLanes, sum[r][v]);
  }
}

template <class U, int kRows = U::kTileRows>
inline void matmul_rows(int64_t rows, const TileProduct& product) {
  if (rows == kRows) return matmul_tile<U, kRows>(product);
  if constexpr (kRows > 1) matmul_rows<U, kRows - 1>(rows, product);
}

inline void prefetch_lines(const void* begin, int64_t bytes) {
  const char* const p = static_cast<const char*>(begin);
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 1);
}

// A block of rows times a group of panels.
template <class U, typename T, typename Out>
class MatmulBlock {
 public:
  MatmulBlock(const MatmulPart<T, Out>& part, float* packed_a, float* own_sums)
      : part_(part),
        blocks_(units_of<U>(part.args.depth)),
        panels_((part.piece.columns + kTileColumns<U> - 1) / kTileColumns<U>),
        packed_a_(packed_a),
        own_sums_(own_sums) {}

  void run(int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) {
    row_begin_ = row_begin, row_end_ = row_end, panel_begin_ = panel_begin, panel_end_ = panel_end;
    const int64_t last = part_.piece.first_block + part_.piece.blocks;
    for (int64_t block = part_.piece.first_block; block < last; ++block) {
      pack_rows(block);
      for (int64_t panel = panel_begin; panel < panel_end; ++panel) multiply_panel(block, panel);
    }
  }

 private:
  using S = typename U::Simd;
  static constexpr int64_t kTileFloats = U::kTileRows * kTileColumns<U>;

  void pack_rows(int64_t block) {
    const PanelSource<T> all{part_.args.a.data, part_.args.a.stride, part_.args.a.order == Order::kRows};
    const int64_t begin = blocks_.begin(block);
    const int64_t end = blocks_.begin(block + 1);
    const int64_t step = all.along_depth ? end - begin : kUnitsAcross;
    for (int64_t unit = begin; unit < end; unit += step) {
      for (int64_t row = row_begin_; row < row_end_; row += U::kTileRows) {
        const int64_t rows = smaller(U::kTileRows, row_end_ - row);
        float* const to = packed_a_ + (row - row_begin_) * (end - begin) + (unit - begin) * rows;
        pack_panel<U>(all.from(row), {rows, rows, part_.args.depth}, unit, smaller(unit + step, end), to);
      }
    }
  }

  float* sums_of(int64_t row, int64_t panel) const {
    const int64_t row_tile = row / U::kTileRows;
    if (part_.sums != nullptr) return part_.sums + (row_tile * panels_ + panel) * kTileFloats;
    if (blocks_.count == 1) return own_sums_;
    return own_sums_ +
           ((row_tile - row_begin_ / U::kTileRows) * (panel_end_ - panel_begin_) + panel - panel_begin_) * kTileFloats;
  }

  const float* b_of(int64_t block, int64_t panel) const {
    const int64_t first_unit = blocks_.begin(part_.piece.first_block);
    const int64_t piece_units = blocks_.begin(part_.piece.first_block + part_.piece.blocks) - first_unit;
    return part_.panels + (panel * piece_units + blocks_.begin(block) - first_unit) * kTileColumns<U>;
  }

  // What is multiplied behind this panel of the block, for tiles of the panel to ask for.
  PanelAhead<float> ahead_of(int64_t block, int64_t panel) const {
    const int64_t tiles = (row_end_ - row_begin_ + U::kTileRows - 1) / U::kTileRows;
    const bool is_last = panel + 1 == panel_end_;
    const int64_t next = is_last ? block + 1 : block;
    if (next == part_.piece.first_block + part_.piece.blocks) return {nullptr, 0, 0, 0};
    const int64_t units = blocks_.begin(next + 1) - blocks_.begin(next);
    return {b_of(next, is_last ? panel_begin_ : panel + 1), units, kTileColumns<U>, tiles};
  }

  void multiply_panel(int64_t block, int64_t panel) {
    const int64_t units = blocks_.begin(block + 1) - blocks_.begin(block);
    const float* const b = b_of(block, panel);
    const int64_t column = part_.piece.first_column + panel * kTileColumns<U>;
    const int64_t columns = smaller(kTileColumns<U>, part_.piece.first_column + part_.piece.columns - column);
    const MatmulResult<T, Out>& result = part_.args.result;
    const float* a = packed_a_;
    PanelAhead<float> ahead = ahead_of(block, panel);
    for (int64_t row = row_begin_; row < row_end_; row += U::kTileRows) {
      const TilePlace at{row, column, smaller(U::kTileRows, row_end_ - row), columns};
      float* const tile = sums_of(row, panel);
      const bool last = block + 1 == blocks_.count;
      if (block > 0) prefetch_lines(tile, at.rows * kTileColumns<U> * 4);
      if (last) {
        for (int64_t r = 0; r < at.rows; ++r) {
          prefetch_lines(result.c + (row + r) * result.stride + column, columns * static_cast<int64_t>(sizeof(Out)));
        }
      }
      const Sums sums = block == 0 ? Sums::kNew : Sums::kContinued;
      matmul_rows<U>(at.rows, {a, b, units, sums, tile, ahead.for_next_tile()});
      if (last) store_sums<S>(result, at, tile);
      a += at.rows * units;
    }
  }

  const MatmulPart<T, Out>& part_;
  DepthBlocks blocks_;
  int64_t panels_;
  float* packed_a_;
  float* own_sums_;
  int64_t row_begin_ = 0, row_end_ = 0, panel_begin_ = 0, panel_end_ = 0;
};

// Rows, in whole tiles, and panels of a part's blocks: as equal as can be.
template <class U, typename T, typename Out>
int64_t block_rows(const MatmulPart<T, Out>& part) {
  const int64_t tiles = (part.row_end - part.row_begin + U::kTileRows - 1) / U::kTileRows;
  constexpr int64_t kTileBytes = U::kTileRows * kDepthBlock * 4;
  return equal_pieces(tiles, pieces_in(part.blocks.rows_bytes, U::kRowTiles * kTileBytes, kTileBytes)) * U::kTileRows;
}
template <class U, typename T, typename Out>
int64_t block_panels(const MatmulPart<T, Out>& part) {
  const int64_t most = pieces_in(part.blocks.columns, kGroupColumns, kTileColumns<U>);
  return equal_pieces(part.panel_end - part.panel_begin, most);
}

template <class U, typename T, typename Out>
int64_t packed_a_floats(const MatmulPart<T, Out>& part) {
  return round_up(block_rows<U>(part) * DepthBlocks(units_of<U>(part.args.depth)).size + U::Simd::kLanes, 16);
}

template <class U, typename T, typename Out>
int64_t matmul_scratch(const MatmulPart<T, Out>& part) {
  if (part.sums != nullptr) return packed_a_floats<U>(part);
  const bool one_block = DepthBlocks(units_of<U>(part.args.depth)).count == 1;
  return packed_a_floats<U>(part) +
         kTileColumns<U> * (one_block ? U::kTileRows : block_rows<U>(part) * block_panels<U>(part));
}

template <class U, typename T, typename Out>
void matmul_part(const MatmulPart<T, Out>& part) {
  MatmulBlock<U, T, Out> block(part, part.scratch, part.scratch + packed_a_floats<U>(part));
  const int64_t rows = block_rows<U>(part);
  const int64_t panels = block_panels<U>(part);
  for (int64_t row = part.row_begin; row < part.row_end; row += rows) {
    for (int64_t panel = part.panel_begin; panel < part.panel_end; panel += panels) {
      block.run(row, smaller(row + rows, part.row_end), panel, smaller(panel + panels, part.panel_end));
    }
  }
}

template <class U, typename T, typename Out>
constexpr MatmulRung<T, Out> matmul_rung(Isa isa) {
  return {isa,
          {U::kTileRows, kTileColumns<U>, U::kDepthPerUnit},
          &pack_right_panels<U, T>,
          &matmul_scratch<U, T, Out>,
          &matmul_part<U, T, Out>,
          kFewestRows};
}

}  // namespace
}  // namespace strake::kernels
