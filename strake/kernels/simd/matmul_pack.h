#pragma once

#include "strake/kernels/matmul_rungs.h"
#include "strake/kernels/simd/lanes.h"

// Packing: panels of a few rows of A, or columns of B, in which the units of one depth follow each other. Both operands
// are packed by the same code, which sees a panel's rows or columns as lines along the depth.
namespace strake::kernels {
namespace {

// A unit is a number as fp32.
template <class S>
struct Singles {
  using Simd = S;
  using Float = typename S::Float;
  static constexpr int kTileRows = S::kLanes == 16 ? 12 : 6;  // with two vectors of B, 24 or 12 sums in registers
  static constexpr int kRowTiles = 12;                        // A in half of a second-level cache of 512 KiB
  static constexpr int kDepthPerUnit = 1;
  static constexpr int64_t kDepthStep = 1;

  static Float multiply_add(Float a, Float b, Float sum) { return S::fma(a, b, sum); }
  // Successive units of a line; `left` numbers of it are left.
  template <typename T>
  static Float along(const T* p, int64_t left) {
    return left >= S::kLanes ? S::load(p) : S::load(p, Part{static_cast<int>(left)});
  }
  // The same unit of successive lines; the next depth is `stride` further.
  template <typename T, class Lanes>
  static Float across(const T* p, int64_t /*stride*/, int64_t /*left*/, Lanes lanes) {
    return S::load(p, lanes);
  }
};

// Whole steps of U::kDepthStep units; what is not of the depth is packed as 0.
template <class U>
inline int64_t units_of(int64_t depth) {
  return round_up((depth + U::kDepthPerUnit - 1) / U::kDepthPerUnit, U::kDepthStep);
}

// The largest size <= most into which `count` falls in equal pieces, but for the last; at least 1.
inline int64_t equal_pieces(int64_t count, int64_t most) {
  if (count <= 0) return 1;
  const int64_t pieces = (count + most - 1) / most;
  return (count + pieces - 1) / pieces;
}

// How many pieces of `size` there is room for in `asked`, or in `own` where nothing is asked for; at least 1.
inline int64_t pieces_in(int64_t asked, int64_t own, int64_t size) {
  const int64_t pieces = (asked == 0 ? own : asked) / size;
  return pieces > 0 ? pieces : 1;
}

// Lines of an operand: rows of A, columns of B.
template <typename T>
struct PanelSource {
  const T* data;
  int64_t stride;
  bool along_depth;  // each line is contiguous; else each depth is
  PanelSource from(int64_t line) const { return {data + line * (along_depth ? stride : 1), stride, along_depth}; }
};

struct PanelShape {
  int64_t lines;
  int64_t pitch;  // floats from unit to unit, at least `lines`
  int64_t depth;  // of the operand
};

// Whole vectors are stored: what a store leaves beyond `pitch` the next unit's overwrites.
template <class U, typename T>
void pack_lines_along(const PanelSource<T>& from, const PanelShape& shape, int64_t begin, int64_t end, float* to) {
  using S = typename U::Simd;
  for (int64_t line = 0; line < shape.lines; line += S::kLanes) {
    // Lanes beyond the last line repeat it; nobody reads them.
    const T* lines[S::kLanes];
    for (int i = 0; i < S::kLanes; ++i) lines[i] = from.data + smaller(line + i, shape.lines - 1) * from.stride;
    for (int64_t unit = begin; unit < end; unit += S::kLanes) {
      const int64_t k = unit * U::kDepthPerUnit;
      typename S::Float block[S::kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < S::kLanes; ++i) block[i] = U::along(lines[i] + k, shape.depth - k);
      S::transpose(block);
      float* const out = to + (unit - begin) * shape.pitch + line;
      if (end - unit >= S::kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < S::kLanes; ++i) S::store(out + i * shape.pitch, block[i]);
      } else {
        for (int i = 0; i < end - unit; ++i) S::store(out + i * shape.pitch, block[i]);
      }
    }
  }
}

// Where each depth is contiguous, so many units of all lines are packed before the next: the memory is read in order,
// and the cache lines of a depth, which belong to several panels, are needed again before they are gone.
constexpr int64_t kUnitsAcross = 16;

// Asks for the lines of one unit, which are as far apart as the depths are: no hardware sees them coming.
template <class U, typename T>
void prefetch_unit(const PanelSource<T>& from, const PanelShape& shape, int64_t unit) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t last = smaller((unit + 1) * U::kDepthPerUnit, shape.depth);
  for (int64_t k = unit * U::kDepthPerUnit; k < last; ++k) {
    for (int64_t i = 0; i < shape.lines; i += kLine) __builtin_prefetch(from.data + k * from.stride + i, 0, 2);
  }
}

template <class U, typename T>
void pack_lines_across(const PanelSource<T>& from, const PanelShape& shape, int64_t begin, int64_t end, float* to) {
  using S = typename U::Simd;
  for (int64_t unit = begin; unit < end; ++unit, to += shape.pitch) {
    const int64_t k = unit * U::kDepthPerUnit;
    const T* const row = from.data + k * from.stride;
    prefetch_unit<U>(from, shape, unit + kUnitsAcross);
    for_each_vector<S>(shape.lines, [&](int64_t line, auto lanes) {
      const typename S::Float value =
          k < shape.depth ? U::across(row + line, from.stride, shape.depth - k, lanes) : S::zero();
      if (unit + 1 < end) {
        S::store(to + line, value);
      } else {
        S::store(to + line, value, lanes);
      }
    });
  }
}

// Units [begin, end) of one panel. Returns where the next one begins; a vector is written beyond it at most.
template <class U, typename T>
float* pack_panel(const PanelSource<T>& from, const PanelShape& shape, int64_t begin, int64_t end, float* to) {
  if (from.along_depth) {
    pack_lines_along<U>(from, shape, begin, end, to);
  } else {
    pack_lines_across<U>(from, shape, begin, end, to);
  }
  return to + (end - begin) * shape.pitch;
}

template <class U, typename T>
void pack_right_panels(const MatrixOperand<T>& b, const PanelPiece& piece, int64_t begin, int64_t end, float* panels) {
  constexpr int64_t kColumns = 2 * U::Simd::kLanes;
  const PanelSource<T> all{b.data, b.stride, b.order == Order::kColumns};
  const DepthBlocks blocks(units_of<U>(piece.depth));
  const int64_t first_unit = blocks.begin(piece.first_block);
  const int64_t last_unit = blocks.begin(piece.first_block + piece.blocks);
  const int64_t step = all.along_depth ? last_unit - first_unit : kUnitsAcross;
  for (int64_t unit = first_unit; unit < last_unit; unit += step) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t column = panel * kColumns;
      const PanelShape shape{smaller(kColumns, piece.columns - column), kColumns, piece.depth};
      pack_panel<U>(all.from(piece.first_column + column), shape, unit, smaller(unit + step, last_unit),
                    panels + (panel * (last_unit - first_unit) + unit - first_unit) * kColumns);
    }
  }
}

}  // namespace
}  // namespace strake::kernels
