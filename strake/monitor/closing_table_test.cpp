#include "strake/monitor/closing_table.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "strake/monitor/number_text.h"

namespace strake::monitor::closing_table_test {
namespace {

TEST(ClosingTable, NamesAlignLeftAndValuesAlignRight) {
  std::ostringstream out;
  const std::vector<TableRow> rows{{"epoch", "3.0"}, {"train_runtime", "12:34"}};
  print_closing_table(out, "train metrics", rows);
  EXPECT_EQ(out.str(),
            "***** train metrics *****\n"
            "  epoch         =   3.0\n"
            "  train_runtime = 12:34\n");
}

TEST(NumberText, CountsHaveThousandsSeparators) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1,000");
  EXPECT_EQ(count_text(123456), "123,456");
  EXPECT_EQ(count_text(-1234567), "-1,234,567");
  EXPECT_EQ(count_text(-123), "-123");
}

TEST(NumberText, DurationsGrowWithTheirSize) {
  EXPECT_EQ(duration_text(6.6), "0:07");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(754), "12:34");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(2 * 86400 + 3 * 3600 + 4 * 60 + 5), "2d 3:04:05");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(0.0 / 0.0), "?");
  EXPECT_EQ(duration_text(1e300), "?");
}

TEST(NumberText, ScaledNumbersHaveThreeDigits) {
  EXPECT_EQ(scaled_text(0), "0");
  EXPECT_EQ(scaled_text(950), "950");
  EXPECT_EQ(scaled_text(999.7), "1.00 k");
  EXPECT_EQ(scaled_text(12345), "12.3 k");
  EXPECT_EQ(scaled_text(4567890), "4.57 M");
  EXPECT_EQ(scaled_text(9.996e9), "10.0 G");
  EXPECT_EQ(scaled_text(123456789012.0), "123 G");
  EXPECT_EQ(scaled_text(2.5e15), "2.50 P");
}

}  // namespace
}  // namespace strake::monitor::closing_table_test
