#pragma once

#include <cstdint>

namespace strake::kernels {

// How much a matrix product keeps in a core's second-level cache while it walks through the right operand. What is best
// depends on the processor and is found by measuring (inference/cache_tuning.h); results do not depend on it. 0: what
// the kernel does by itself, made for caches of 512 KiB to 1 MiB.
struct CacheBlocks {
  int64_t rows_bytes = 0;  // of the left operand, packed; at least a tile's rows are
  int64_t columns = 0;     // whose sums are kept while the depth is walked through; only fp32 and bf16 without AMX
  bool operator==(const CacheBlocks&) const = default;
};

// From row to row of a matrix of T whose rows are multiplied, in elements: an odd number of cache lines. An even one
// would lay the rows that are read together into few sets of the caches, so that products have to pack them first.
template <typename T>
constexpr int64_t row_stride(int64_t columns) {
  constexpr int64_t kLine = 64 / sizeof(T);
  return ((columns + kLine - 1) / kLine | 1) * kLine;
}

}  // namespace strake::kernels
