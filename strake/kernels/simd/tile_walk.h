#pragma once

#include "strake/kernels/simd/tiles.h"

// The way through a block of rows times one panel of B after the other.
//
// Of a panel, as much as fits stays in the first-level cache while the rows come from the second. A large depth is
// walked through in pieces that fit; a few tiles' sums wait there meanwhile. The unit that multiplies tiles works
// beside the vector units, so between its products rows of the tile before go to where they belong, one at a time, and
// the next panel, which no hardware sees coming, is asked for.
namespace strake::kernels {
namespace {

constexpr int64_t kWholeSteps = 32;  // of a depth that is not cut
constexpr int64_t kPieceSteps = 16;  // at a time of one that is: 32 KiB of a panel
constexpr int64_t kWalkTiles = 8;    // whose sums wait where the depth is cut
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
  // Where a block of the depth is not all of it: a tile for each tile of rows, kept from block to block.
  char* sums = nullptr;
  int64_t sums_stride = 0;  // bytes, from tile to tile
  bool is_first = true;     // block of the depth
  bool is_last = true;
};
// Rows of sums that are whole.
struct TiledSums {
  char* sums = nullptr;  // [rows, 32] of 32 bits
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
    const int64_t pieces = rows.steps > kWholeSteps ? (rows.steps + kPieceSteps - 1) / kPieceSteps : 1;
    const int64_t piece = (rows.steps + pieces - 1) / pieces;
    const int64_t group = pieces == 1 && rows.rows > 0 ? rows.rows : kWalkTiles * kTiledRows;
    waiting_tiles_ = pieces == 1 ? 2 : kWalkTiles + 1;
    prefetch(panel.next, rows);
    for (int64_t begin = 0; begin < rows.rows; begin += group) {
      const int64_t end = begin + group < rows.rows ? begin + group : rows.rows;
      const int64_t first = waiting_;
      for (int64_t i = 0; i < pieces; ++i) {
        const int64_t step = i * piece;
        waiting_ = first;
        multiply_rows({.rows = rows,
                       .panel = panel,
                       .begin = begin,
                       .end = end,
                       .step = step,
                       .steps = i + 1 < pieces ? piece : rows.steps - step,
                       .is_last = i + 1 == pieces && panel.is_last});
      }
    }
  }

  void finish_all() {
    if (last_.sums != nullptr) {
      store_sums_of(tiles_, last_.sums);
      if (last_is_whole_) {
        finish_rows(rows_, rows_left_);
        rows_left_ = sink_.start(last_, rows_);
      }
      last_ = {};
      last_is_whole_ = false;
    }
    finish_rows(rows_, rows_left_);
  }

 private:
  static constexpr int64_t kTileBytes = kTiledRows * kTiledRowBytes;
  static constexpr int kStoringPlaces = 3;  // of the four in a step; one is for what comes next

  struct Piece {
    const TiledRows& rows;
    const TiledPanel& panel;
    int64_t begin, end;   // rows
    int64_t step, steps;  // of the depth
    bool is_last;
  };

  static void finish_rows(typename Sink::Rows& rows, int64_t& left) {
    for (; left > 0; --left) rows.store_next();
  }

  // The first step is over when a tile's rows can be stored.
  void multiply_rows(const Piece& piece) {
    if ((piece.steps - 1) * kStoringPlaces < kTiledRows) return multiply_rows_of<2>(piece);
    multiply_rows_of<1>(piece);
  }
  // The second half of the last tile is left out if it has no row.
  template <int kRowsAPlace>
  void multiply_rows_of(const Piece& piece) {
    const int64_t whole = piece.begin + (piece.end - piece.begin + kTileSide - 1) / kTiledRows * kTiledRows;
    if (whole > piece.begin) {
      multiply_tiles_of<true, kRowsAPlace>(piece, piece.begin, whole < piece.end ? whole : piece.end);
    }
    if (whole < piece.end) multiply_tiles_of<false, kRowsAPlace>(piece, whole, piece.end);
  }

  // A function of its own, where what is needed between the products has registers, over many tiles.
  template <bool kTwoRows, int kRowsAPlace>
  [[gnu::noinline]] void multiply_tiles_of(const Piece& piece, int64_t begin, int64_t end) {
    typename Sink::Rows storing = rows_;
    int64_t rows_left = rows_left_;
    int64_t waiting = waiting_;
    const char* next = next_;
    const auto meanwhile = [&, lines = lines_a_step_, next_end = next_end_](int place) __attribute__((always_inline)) {
      if (place < kStoringPlaces) {
        for (int i = 0; i < kRowsAPlace && rows_left > 0; ++i, --rows_left) storing.store_next();
      } else {
        for (int64_t i = 0; i < lines && next != next_end; ++i, next += kTileRowBytes) __builtin_prefetch(next, 0, 2);
      }
    };
    TiledSums last = last_;
    bool last_is_whole = last_is_whole_;
    const auto have_left = [&]() __attribute__((always_inline)) {
      if (!last_is_whole) return;
      finish_rows(storing, rows_left);
      rows_left = sink_.start(last, storing);
    };
    for (int64_t row = begin; row < end; row += kTiledRows) {
      char* const sums = piece.panel.sums != nullptr ? piece.panel.sums + row / kTiledRows * piece.panel.sums_stride
                                                     : sums_ + waiting * kTileBytes;
      waiting = waiting + 1 < waiting_tiles_ ? waiting + 1 : 0;
      const TiledLines lines = piece.rows.from(row);
      const bool continued = piece.step > 0 || !piece.panel.is_first;
      multiply_tiles<Numbers, kTwoRows>(tiles_,
                                        {.a = lines.a + piece.step * kTileRowBytes,
                                         .a_stride = lines.stride,
                                         .b = piece.panel.b + piece.step * kTileSide * kTiledRowBytes,
                                         .steps = piece.steps,
                                         .sums = continued ? sums : nullptr,
                                         .leaving = last.sums},
                                        meanwhile, have_left);
      last = {sums, row, piece.panel.column, end - row < kTiledRows ? end - row : kTiledRows};
      last_is_whole = piece.is_last;
    }
    last_ = last;
    last_is_whole_ = last_is_whole;
    rows_ = storing;
    rows_left_ = rows_left;
    waiting_ = waiting;
    next_ = next;
  }

  // In equal parts for all steps of these rows.
  void prefetch(const char* panel, const TiledRows& rows) {
    const int64_t lines = panel == nullptr ? 0 : rows.steps * kTileSide * kTiledRowBytes / kTileRowBytes;
    const int64_t steps = (rows.rows + kTiledRows - 1) / kTiledRows * rows.steps;
    next_ = panel;
    next_end_ = panel + lines * kTileRowBytes;
    lines_a_step_ = steps == 0 ? 0 : (lines + steps - 1) / steps;
  }

  char* const sums_;  // kWalkSums, unused where panels have their own
  const Sink& sink_;
  int64_t waiting_tiles_ = 1;  // whose sums take turns
  int64_t waiting_ = 0;        // the next one
  TiledSums last_;             // still in the tiles, or none
  bool last_is_whole_ = false;
  typename Sink::Rows rows_;  // of the sums before
  int64_t rows_left_ = 0;
  const char* next_ = nullptr;
  const char* next_end_ = nullptr;
  int64_t lines_a_step_ = 0;
  Tiles tiles_;
};

}  // namespace
}  // namespace strake::kernels
