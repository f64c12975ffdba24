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

// The instruction takes three cycles, and one can begin in each: three streams are computed side by side.
constexpr size_t kStreamBytes = 4096;

// What as many zeros behind it do to a sum, by each of its bytes: it is linear in the bits.
constexpr std::array<std::array<uint32_t, 256>, 4> make_shifts() {
  std::array<std::array<uint32_t, 256>, 4> shifts{};
  for (uint32_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = 1U << bit;
    for (size_t i = 0; i < kStreamBytes; ++i) crc = (crc >> 8) ^ kTable[crc & 0xFFU];
    for (uint32_t byte = 0; byte < 256; ++byte) {
      if ((byte >> (bit % 8) & 1U) != 0) shifts[bit / 8][byte] ^= crc;
    }
  }
  return shifts;
}
constexpr std::array<std::array<uint32_t, 256>, 4> kShifts = make_shifts();

uint64_t shifted(uint64_t crc) {
  return kShifts[0][crc & 0xFFU] ^ kShifts[1][crc >> 8 & 0xFFU] ^ kShifts[2][crc >> 16 & 0xFFU] ^
         kShifts[3][crc >> 24 & 0xFFU];
}

__attribute__((target("sse4.2"))) uint64_t add_word(uint64_t crc, const unsigned char* next) {
  uint64_t word = 0;
  std::memcpy(&word, next, sizeof(word));
  return _mm_crc32_u64(crc, word);
}

__attribute__((target("sse4.2"))) uint32_t update_sse42(const unsigned char* next, size_t bytes, uint32_t crc) {
  uint64_t wide = crc;
  for (; bytes >= 3 * kStreamBytes; bytes -= 3 * kStreamBytes, next += 3 * kStreamBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kStreamBytes; i += 8) {
      wide = add_word(wide, next + i);
      second = add_word(second, next + kStreamBytes + i);
      third = add_word(third, next + 2 * kStreamBytes + i);
    }
    wide = shifted(shifted(wide) ^ second) ^ third;
  }
  for (; bytes >= 8; bytes -= 8, next += 8) wide = add_word(wide, next);
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
