#include "strake/scoring/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "strake/core/error.h"

namespace strake::scoring::shard_test {
namespace {

TEST(ShardTest, ShardsCoverAllRowsOnceAndEvenly) {
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{8}, int64_t{1001}, int64_t{1} << 60}) {
    for (const int64_t count : {1, 2, 3, 8, 99'999}) {
      int64_t next = 0;
      int64_t least = std::numeric_limits<int64_t>::max();
      int64_t most = 0;
      for (int64_t index = 0; index < count; ++index) {
        const Shard shard{index, count};
        ASSERT_EQ(shard.begin(rows), next);
        next = shard.end(rows);
        least = std::min(least, next - shard.begin(rows));
        most = std::max(most, next - shard.begin(rows));
      }
      EXPECT_EQ(next, rows);
      EXPECT_LE(most - least, 1);
    }
  }
}

TEST(ShardTest, TextIsIndexOverCount) {
  EXPECT_TRUE(Shard::parse("").is_all());
  EXPECT_TRUE(Shard::parse("0/1").is_all());
  const Shard shard = Shard::parse("2/8");
  EXPECT_EQ(shard.index, 2);
  EXPECT_EQ(shard.count, 8);
  EXPECT_EQ(shard.suffix(), "-00002-of-00008");
  EXPECT_EQ(Shard{}.suffix(), "");
  for (const char* bad : {"2", "/8", "2/", "8/8", "-1/8", "0/0", "0/-1", "2/8x", " 2/8", "2:8", "0/100000",
                          "99999999999999999999/8", "a/b"}) {
    EXPECT_THROW(Shard::parse(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace strake::scoring::shard_test
