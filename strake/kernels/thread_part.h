#pragma once

#include <algorithm>
#include <cstdint>

namespace strake::kernels {

// One of `count` parts of a kernel's work, which as many threads compute at the same time. Absent: all of it.
struct ThreadPart {
  int index = 0;
  int count = 1;
};

// A product's tiles cut for threads: rows and panels of columns as a grid whose largest part is the smallest, where
// packing the rows of a tile counts as 2/5 tile, and a panel as kFewestRows at least: with fewer it is waited for, so
// that threads had better read panels of their own. There may be more threads than parts.
struct ThreadGrid {
  ThreadGrid(int threads, int64_t tile_rows, int64_t row_tiles, int64_t panels) : row_tiles(row_tiles), panels(panels) {
    const int64_t fewest = pieces(kFewestRows, tile_rows);
    int64_t best = -1;
    for (int columns = 1; columns <= threads; ++columns) {
      const int rows = threads / columns;
      const int64_t own_rows = pieces(row_tiles, rows);
      const int64_t cost = 5 * pieces(panels, columns) * std::max(own_rows, fewest) + 2 * own_rows;
      if (best < 0 || cost < best) best = cost, down = rows, across = columns;
    }
  }
  struct Range {
    int64_t begin, end;
  };
  int parts() const { return down * across; }
  Range rows_of(int part) const { return cut(row_tiles, part / across, down); }  // in tiles
  Range panels_of(int part) const { return cut(panels, part % across, across); }

  int64_t row_tiles, panels;
  int down = 1;
  int across = 1;

 private:
  static constexpr int64_t kFewestRows = 64;
  static int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }
  static Range cut(int64_t count, int64_t index, int64_t parts) {
    return {count * index / parts, count * (index + 1) / parts};
  }
};

}  // namespace strake::kernels
