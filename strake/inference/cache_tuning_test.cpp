#include "strake/inference/cache_tuning.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "strake/core/cpu_features.h"

namespace strake::inference::cache_tuning_test {
namespace {

LayerBlocks some_blocks() {
  LayerBlocks blocks;
  for (size_t i = 0; i < kLinears; ++i) {
    const auto n = static_cast<int64_t>(i);
    blocks.plain[i] = {.rows_bytes = 1000 + n, .columns = 10 * n};
    blocks.quantized[i] = {.rows_bytes = n, .columns = 0};
  }
  return blocks;
}

TEST(CacheTuning, TakesWhatIsClearlyFasterInItsBestTurn) {
  const auto choice = [](const std::vector<std::vector<double>>& turns) {
    std::vector<size_t> done(turns[0].size());
    return fastest(turns[0].size(), [&](size_t i) { return turns[done[i]++ % turns.size()][i]; });
  };
  EXPECT_EQ(choice({{1.0, 0.9, 0.8, 0.85}}), 2U);
  EXPECT_EQ(choice({{1.0, 0.99, 0.98}}), 0U) << "that may be noise";
  EXPECT_EQ(choice({{1.0, 3.0}, {1.2, 0.5}, {9.0, 4.0}}), 1U) << "a turn was disturbed";
  EXPECT_EQ(choice({{5.0, 0.9}, {0.8, 0.9}, {5.0, 0.9}}), 0U) << "turns of the first one were";
  EXPECT_EQ(choice({{1.0}}), 0U);
}

TEST(CacheTuning, IsReadAsItWasWritten) {
  for (const LayerBlocks& blocks : {LayerBlocks{}, some_blocks()}) EXPECT_EQ(parse_blocks(text_of(blocks)), blocks);
}

TEST(CacheTuning, OfAnotherProcessorOrWithNonsenseIsNone) {
  const std::string text = text_of(some_blocks());
  const std::string numbers = text.substr(text.find(':') + 1);
  ASSERT_EQ(parse_blocks(text), some_blocks());
  EXPECT_EQ(parse_blocks("Another Processor 00000001:" + numbers), std::nullopt);
  EXPECT_EQ(parse_blocks(""), std::nullopt);
  EXPECT_EQ(parse_blocks(text + "1"), std::nullopt);
  for (size_t length = 0; length < text.size(); ++length) EXPECT_EQ(parse_blocks(text.substr(0, length)), std::nullopt);
  const std::string processor = text.substr(0, text.find(':') + 1);
  const std::string rest = numbers.substr(numbers.find(';') + 1);
  for (const char* first : {"-1x0;", "1x-1;", "99999999999x0;", "0x99999999999;", "99999999999999999999x0;", "axb;",
                            "1,0;", "1 x0;", "x;", ";"}) {
    EXPECT_EQ(parse_blocks(processor + first + rest), std::nullopt) << first;
  }
}

}  // namespace
}  // namespace strake::inference::cache_tuning_test
