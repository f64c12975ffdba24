#pragma once

#include "strake/kernels/simd/tiles.h"

// The way through a block of rows times one panel of B after the other.
//
// The depth is walked through in pieces so short that a panel's piece stays in the first-level cache while the rows
// come from the second; a few tiles' sums wait there meanwhile. The unit that multiplies tiles works beside the vector
// units, so between its steps some rows of the tile before go to where they belong, and the next panel, which no
// hardware sees coming, is asked for.
namespace strake::kernels {
namespace {

constexpr int64_t kWalkSteps = 12;  // of the depth at a time: 24 KiB of a panel
constexpr int64_t kWalkTiles = 4;   // whose sums wait where the depth is cut
constexpr int64_t kWalkSums = (kWalkTiles + 1) * kTiledRows * kTiledColumns;  // of 32 bits: one more is being stored

// Rows of `steps` times 64 bytes of A, `stride` bytes apart, on cache lines.
struct TiledLines {
  const char* a;
  int64_t stride;
};
struct TiledRows {
  TiledLines whole;  // tiles of rows
  TiledLines last;   // the last rows, where they are no whole tile
  int64_t rows;
  int64_t steps;

  TiledLines from(int64_t row) const {
    return row + kTiledRows <= rows ? TiledLines{whole.a + row * whole.stride, whole.stride} : last;
  }
};
// All rows at one stride.
inline TiledRows packed_rows(const TiledLines& lines, int64_t rows, int64_t steps) {
  return {lines, {lines.a + rows / kTiledRows * kTiledRows * lines.stride, lines.stride}, rows, steps};
}
struct TiledPanel {
  const char* b;     // [steps, 16 units, 32 columns] of 32 bits
  const char* next;  // what comes after it, as long, or null
  int64_t column;
  // Where a block of the depth is not all of it: [row tiles, a tile] of this panel, kept from block to block.
  char* sums = nullptr;
  bool is_first = true;  // block of the depth
  bool is_last = true;
};
// Rows of sums that are whole.
struct TiledSums {
  const char* sums = nullptr;  // [rows, 32] of 32 bits
  int64_t row = 0;
  int64_t column = 0;
  int64_t rows = 0;
};

// A Sink takes sums that are whole:
//   Rows                 by value: stores the rows of a tile, the next one with store_next()
//   start(sums, rows)    how many `rows` is to store; 0 if that has been done already
// The last ones wait until finish_all().
template <class Numbers, class Tiles, class Sink>
class TileWalk {
 public:
  TileWalk(void* sums, const Sink& sink) : sums_(static_cast<char*>(sums)), sink_(sink) {}

  void multiply(const TiledRows& rows, const TiledPanel& panel) {
    const int64_t pieces = rows.steps > kWalkSteps ? (rows.steps + kWalkSteps - 1) / kWalkSteps : 1;
    const int64_t piece = (rows.steps + pieces - 1) / pieces;
    const int64_t group = (pieces == 1 ? 1 : kWalkTiles) * kTiledRows;
    waiting_tiles_ = group / kTiledRows + 1;
    // Not in the last third of the steps: rows that still wait for their cache lines would keep new sums waiting.
    const int64_t storing_steps = piece < 2 ? 1 : piece * 2 / 3;
    rows_a_step_ = (kTiledRows + storing_steps - 1) / storing_steps;
    prefetch(panel.next, rows);
    for (int64_t begin = 0; begin < rows.rows; begin += group) {
      const int64_t end = begin + group < rows.rows ? begin + group : rows.rows;
      for (int64_t i = 0; i < pieces; ++i) {
        const int64_t step = i * piece;
        const int64_t steps = i + 1 < pieces ? piece : rows.steps - step;
        for (int64_t row = begin; row < end; row += kTiledRows) {
          char* const sums = panel.sums != nullptr ? panel.sums + row / kTiledRows * kTileBytes
                                                   : waiting_sums((row - begin) / kTiledRows);
          const TiledLines lines = rows.from(row);
          multiply_tile({.a = lines.a + step * kTileRowBytes,
                         .a_stride = lines.stride,
                         .b = panel.b + step * kTileSide * kTiledRowBytes,
                         .steps = steps,
                         .sums = sums,
                         .continued = step > 0 || !panel.is_first},
                        end - row);
          if (i + 1 == pieces && panel.is_last)
            add({sums, row, panel.column, end - row < kTiledRows ? end - row : kTiledRows});
        }
      }
      tiles_before_ += (end - begin + kTiledRows - 1) / kTiledRows;
    }
  }

  void finish_all() {
    for (; rows_left_ > 0; --rows_left_) rows_.store_next();
  }

 private:
  static constexpr int64_t kTileBytes = kTiledRows * kTiledRowBytes;

  char* waiting_sums(int64_t tile) const { return sums_ + (tiles_before_ + tile) % waiting_tiles_ * kTileBytes; }

  // A function of its own, where what is needed between the steps has registers.
  [[gnu::noinline]] void multiply_tile(const TiledProduct& product, int64_t rows) {
    typename Sink::Rows storing = rows_;
    int64_t rows_left = rows_left_;
    const char* next = next_;
    const auto meanwhile = [&, lines = lines_a_step_, most = rows_a_step_]() __attribute__((always_inline)) {
      for (int64_t i = 0; i < lines; ++i, next += kTileRowBytes) __builtin_prefetch(next, 0, 2);
      for (int64_t i = 0; i < most && rows_left > 0; ++i, --rows_left) storing.store_next();
    };
    if (rows > kTileSide) {
      multiply_tiles<Numbers, true>(tiles_, product, meanwhile);
    } else {
      multiply_tiles<Numbers, false>(tiles_, product, meanwhile);
    }
    rows_ = storing;
    rows_left_ = rows_left;
    next_ = next;
  }

  // To be stored between the next steps, or when the next one comes.
  void add(const TiledSums& whole) {
    finish_all();
    rows_left_ = sink_.start(whole, rows_);
  }

  // In equal parts for all steps of these rows; a little beyond its end does no harm.
  void prefetch(const char* panel, const TiledRows& rows) {
    const int64_t lines = rows.steps * kTileSide * kTiledRowBytes / kTileRowBytes;
    const int64_t steps = (rows.rows + kTiledRows - 1) / kTiledRows * rows.steps;
    next_ = panel;
    lines_a_step_ = panel != nullptr && steps > 0 ? (lines + steps - 1) / steps : 0;
  }

  char* const sums_;  // kWalkSums, unused where panels have their own
  const Sink& sink_;
  int64_t waiting_tiles_ = 1;  // whose sums take turns
  int64_t tiles_before_ = 0;
  typename Sink::Rows rows_;
  int64_t rows_left_ = 0;
  int64_t rows_a_step_ = 0;
  const char* next_ = nullptr;
  int64_t lines_a_step_ = 0;
  Tiles tiles_;
};

}  // namespace
}  // namespace strake::kernels
