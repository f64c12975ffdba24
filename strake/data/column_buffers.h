#pragma once

#include <algorithm>
#include <cstdint>

namespace strake::data {

// What is kept of a column while all those of a Parquet file are read, or written, side by side: less of each where
// there are many.
struct ColumnBuffers {
  explicit ColumnBuffers(int64_t columns) : stream(share(columns)), dictionary(share(columns)) {}

  int64_t stream;      // bytes that are read at a time
  int64_t dictionary;  // bytes of values that are encoded as one; real numbers are not

  // Of a column that is read and written, at most, beside its rows: two pages of a MiB, as writers make them, packed
  // and unpacked; and what an encoder finds its values by, which is a few times as large as they are.
  int64_t bytes() const { return stream + 2 * kMost + 4 * dictionary; }

 private:
  static constexpr int64_t kOfAll = int64_t{32} << 20;
  static constexpr int64_t kMost = int64_t{1} << 20;
  static constexpr int64_t kLeast = int64_t{64} << 10;
  static int64_t share(int64_t columns) { return std::clamp(kOfAll / std::max<int64_t>(1, columns), kLeast, kMost); }
};

}  // namespace strake::data
