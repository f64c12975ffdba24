#include "strake/core/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace strake::crc32c_test {
namespace {

TEST(Crc32c, OfTheCheckString) { EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U); }

TEST(Crc32c, IsTheSameHoweverTheBytesAreCut) {
  std::string bytes(50'000, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  for (const size_t size : {0, 7, 8, 4095, 12287, 12288, 12289, 24576, 49'999}) {
    uint32_t by_bytes = 0;
    for (size_t i = 0; i < size; ++i) by_bytes = crc32c(&bytes[i], 1, by_bytes);
    EXPECT_EQ(crc32c(bytes.data(), size), by_bytes) << size;
    const size_t half = size / 2;
    EXPECT_EQ(crc32c(bytes.data() + half, size - half, crc32c(bytes.data(), half)), by_bytes) << size;
  }
}

}  // namespace
}  // namespace strake::crc32c_test
