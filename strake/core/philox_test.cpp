#include "strake/core/philox.h"

#include <gtest/gtest.h>

namespace strake::philox_test {
namespace {

TEST(Philox, MatchesTheAuthorsKnownAnswers) {  // Random123, kat_vectors, philox4x32 10 rounds
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NormalValuesHaveTheRightMoments) {
  const PhiloxKey key = philox_key(42, 7);
  double sum = 0;
  double squares = 0;
  constexpr int kPairs = 100000;
  for (int i = 0; i < kPairs; ++i) {
    for (const float value : philox_normal_pair(key, i)) {
      sum += value;
      squares += double{value} * value;
    }
  }
  EXPECT_NEAR(sum / (2 * kPairs), 0.0, 0.01);       // 4.5 standard errors
  EXPECT_NEAR(squares / (2 * kPairs), 1.0, 0.015);  // the same
}

TEST(Philox, ThresholdKeepsTheRightShare) {
  const uint32_t threshold = dropout_threshold(0.1);
  int kept = 0;
  for (uint32_t i = 0; i < 100000; ++i) kept += philox({1, 2}, {i, 0, 0, 0})[0] >= threshold ? 1 : 0;
  EXPECT_NEAR(kept / 100000.0, 0.9, 0.005);
  EXPECT_EQ(dropout_threshold(0.0), 0U);
}

}  // namespace
}  // namespace strake::philox_test
