#pragma once

#include <algorithm>
#include <cstdint>

namespace strake::data {

// Of a column while all those of a Parquet file are read, or written, side by side, in bytes: what is read at a time,
// and the values that are encoded as a dictionary, which real numbers are not. Less where there are many columns.
inline int64_t column_buffer(int64_t columns) {
  constexpr int64_t kOfAll = int64_t{32} << 20;
  constexpr int64_t kMost = int64_t{1} << 20;
  constexpr int64_t kLeast = int64_t{64} << 10;
  return std::clamp(kOfAll / std::max<int64_t>(1, columns), kLeast, kMost);
}

// What columns that are read and written take at most, beside their rows: these buffers, with what an encoder finds its
// values by, which is a few times as large as they are; and two pages of a MiB, as writers make them, packed and
// unpacked.
inline int64_t bytes_of_columns(int64_t columns) {
  constexpr int64_t kPage = int64_t{1} << 20;
  constexpr int64_t kOfEncoder = 4;
  return columns * ((1 + kOfEncoder) * column_buffer(columns) + 2 * kPage);
}

}  // namespace strake::data
