#include "strake/core/crc32c.h"

#include <nmmintrin.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "strake/core/error.h"

namespace strake {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t update_table(const unsigned char* next, size_t bytes, uint32_t crc) {
  for (; bytes > 0; --bytes) crc = (crc >> 8) ^ kTable[(crc ^ *next++) & 0xFFU];
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t update_sse42(const unsigned char* next, size_t bytes, uint32_t crc) {
  uint64_t wide = crc;
  for (; bytes >= 8; bytes -= 8, next += 8) {
    uint64_t word = 0;
    std::memcpy(&word, next, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  return update_table(next, bytes, static_cast<uint32_t>(wide));
}

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  const auto* next = static_cast<const unsigned char*>(data);
  const bool fast = __builtin_cpu_supports("sse4.2") != 0;
  return ~(fast ? update_sse42(next, bytes, ~crc) : update_table(next, bytes, ~crc));
}

uint32_t crc32c_of_file(const std::filesystem::path& file, int64_t offset, int64_t bytes, uint32_t crc) {
  constexpr int64_t kBlockBytes = int64_t{1} << 20;
  std::ifstream stream(file, std::ios::binary);
  require(stream.is_open(), ErrorKind::kIo, "cannot open {}: {}", file.string(), std::strerror(errno));
  stream.seekg(offset);
  std::string block(kBlockBytes, '\0');
  while (stream && bytes > 0) {
    stream.read(block.data(), std::min(bytes, kBlockBytes));
    crc = crc32c(block.data(), static_cast<size_t>(stream.gcount()), crc);
    bytes -= stream.gcount();
  }
  require(!stream.bad(), ErrorKind::kIo, "cannot read {}", file.string());
  return crc;
}

}  // namespace strake
