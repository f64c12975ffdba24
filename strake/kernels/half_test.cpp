#include "strake/kernels/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace strake::kernels::half_test {
namespace {

TEST(Half, HasTheValuesOfTheStandard) {
  EXPECT_EQ(to_float(Half{0x3C00}), 1.0F);
  EXPECT_EQ(to_float(Half{0xC000}), -2.0F);
  EXPECT_EQ(to_float(Half{0x7BFF}), 65504.0F);
  EXPECT_EQ(to_float(Half{0x0001}), 0x1p-24F);
  EXPECT_EQ(to_float(Half{0x03FF}), 1023 * 0x1p-24F);
  EXPECT_EQ(to_float(Half{0xFC00}), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::signbit(to_float(Half{0x8000})));
  EXPECT_TRUE(std::isnan(to_float(Half{0x7C01})));
}

TEST(Half, RoundsToTheNearestWithTiesToEven) {
  EXPECT_EQ(to_half(1 + 0x1p-11F).bits, 0x3C00);      // halfway between 1 and its neighbour: even
  EXPECT_EQ(to_half(1 + 3 * 0x1p-11F).bits, 0x3C02);  // halfway between the next two: even
  EXPECT_EQ(to_half(1 + 0x1.1p-11F).bits, 0x3C01);
  EXPECT_EQ(to_half(65519.0F).bits, 0x7BFF);
  EXPECT_EQ(to_half(65520.0F).bits, 0x7C00);
  EXPECT_EQ(to_half(-1e30F).bits, 0xFC00);
  EXPECT_EQ(to_half(0x1p-25F).bits, 0x0000);  // halfway between 0 and the smallest: even
  EXPECT_EQ(to_half(-0x1.8p-25F).bits, 0x8001);
  EXPECT_EQ(to_half(0x1.FFFp-15F).bits, 0x0400);  // rounds up to the smallest normal number
  EXPECT_TRUE(std::isnan(to_float(to_half(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Half, ComesBackFromFloatUnchanged) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const Half half{static_cast<uint16_t>(bits)};
    const float value = to_float(half);
    const uint32_t quiet = std::isnan(value) ? 0x200U : 0U;
    ASSERT_EQ(to_half(value).bits, bits | quiet);
  }
}

}  // namespace
}  // namespace strake::kernels::half_test
