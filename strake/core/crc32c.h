#pragma once

#include <cstddef>
#include <cstdint>

namespace strake {

// CRC-32C (Castagnoli) of `bytes` bytes, continuing from `crc` (0 to start). SSE4.2 where available.
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace strake
