#pragma once

#include <cstdint>
#include <string>

namespace strake::scoring {

// Part `index` of `count`, as --shard "2/8" names it. Shards are runs of consecutive rows whose lengths differ by one
// at most.
struct Shard {
  int64_t index = 0;
  int64_t count = 1;

  // "" is all of it. Error (kUsage) unless 0 <= index < count.
  static Shard parse(const std::string& text);

  bool is_all() const { return count == 1; }
  // Rows [begin(rows), end(rows)) of the input belong to it.
  int64_t begin(int64_t rows) const { return cut(rows, index); }
  int64_t end(int64_t rows) const { return cut(rows, index + 1); }
  // "-00002-of-00008", or "" if it is all.
  std::string suffix() const;

 private:
  int64_t cut(int64_t rows, int64_t i) const { return rows / count * i + rows % count * i / count; }
};

}  // namespace strake::scoring
