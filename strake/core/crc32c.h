#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace strake {

// CRC-32C (Castagnoli) of `bytes` bytes, continuing from `crc` (0 to start). SSE4.2 where available.
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc = 0);

// Of a whole file.
struct FileSum {
  uint64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32C

  bool operator==(const FileSum&) const = default;
};

// Of up to `bytes` bytes of a file from `offset` on, read in blocks. Error (kIo) if it cannot be read.
uint32_t crc32c_of_file(const std::filesystem::path& file, int64_t offset, int64_t bytes, uint32_t crc = 0);

}  // namespace strake
