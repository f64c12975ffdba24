#include "strake/monitor/throughput.h"

#include <gtest/gtest.h>

namespace strake::monitor::throughput_test {
namespace {

TEST(RateMeter, NeedsTwoTotalsAtDifferentTimes) {
  RateMeter meter(10);
  EXPECT_EQ(meter.per_second(), 0);
  meter.record(5, 100);
  EXPECT_EQ(meter.per_second(), 0);
  meter.record(5, 200);
  EXPECT_EQ(meter.per_second(), 0);
  meter.record(7, 300);
  EXPECT_DOUBLE_EQ(meter.per_second(), 100);
}

TEST(RateMeter, ForgetsWhatIsOlderThanItsWindow) {
  RateMeter meter(10);
  int64_t total = 0;
  for (int second = 0; second <= 20; ++second) meter.record(second, total += 1000);
  for (int second = 21; second <= 40; ++second) meter.record(second, total += 10);
  EXPECT_DOUBLE_EQ(meter.per_second(), 10);
}

TEST(RateMeter, StepsLongerThanTheWindowStillHaveARate) {
  RateMeter meter(10);
  meter.record(0, 0);
  meter.record(100, 50);
  meter.record(200, 250);
  EXPECT_DOUBLE_EQ(meter.per_second(), 2);
}

TEST(RateMeter, FrequentTotalsGiveTheSameRate) {
  RateMeter meter(10);
  for (int i = 0; i <= 100000; ++i) meter.record(i * 0.001, i);
  EXPECT_NEAR(meter.per_second(), 1000, 1e-6);  // times are not exact in binary
}

TEST(RateMeter, ASmallerTotalStartsAfresh) {
  RateMeter meter(10);
  meter.record(0, 0);
  meter.record(1, 1000);
  meter.record(2, 0);
  EXPECT_EQ(meter.per_second(), 0);
  meter.record(4, 10);
  EXPECT_DOUBLE_EQ(meter.per_second(), 5);
}

}  // namespace
}  // namespace strake::monitor::throughput_test
