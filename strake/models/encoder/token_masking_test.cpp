#include "strake/models/encoder/token_masking.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "strake/models/test_model.h"

namespace strake::models::token_masking_test {
namespace {

constexpr int32_t kMask = 4;
constexpr int64_t kWords = 1000;
constexpr TokenMasking kMasking{.probability = 0.15, .mask_token = kMask, .num_tokens = kWords};
constexpr PhiloxKey kKey{5, 6};

template <typename T>
std::vector<T> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), tensor.const_data_ptr<T>() + tensor.numel()};
}

TEST(TokenMasking, CountsTokensThatAreNotSpecial) {
  for (const auto& [length, count] : std::map<int64_t, int64_t>{
           {0, 0}, {1, 0}, {2, 0}, {3, 1}, {8, 1}, {11, 1}, {12, 2}, {22, 3}, {128, 19}, {512, 77}}) {
    EXPECT_EQ(kMasking.num_masked(length), count) << length;
  }
  EXPECT_EQ((TokenMasking{.probability = 1}.num_masked(7)), 5);
}

TEST(TokenMasking, KeepsWhatWasThereAndLeavesEndsAndOtherTokensAlone) {
  const tensors::PackedBatch batch = packed_batch({30, 2, 3, 1, 64});
  const auto before = values<int32_t>(batch.input_ids);
  const tensors::PackedBatch masked = mask_tokens(batch, kMasking, kKey);
  EXPECT_EQ(values<int32_t>(batch.input_ids), before) << "the batch that came is as it was";
  const auto places = values<int64_t>(masked.masked);
  EXPECT_EQ(places.size(), 4 + 0 + 1 + 0 + 9);
  EXPECT_TRUE(std::ranges::is_sorted(places));
  EXPECT_EQ(std::set(places.begin(), places.end()).size(), places.size());
  for (const int64_t end : {0, 29, 30, 31, 32, 34, 35, 36, 99}) {
    EXPECT_EQ(std::ranges::count(places, end), 0) << end;
  }
  auto restored = values<int32_t>(masked.input_ids);
  const auto targets = values<int32_t>(masked.targets);
  for (size_t i = 0; i < places.size(); ++i) restored[static_cast<size_t>(places[i])] = targets[i];
  EXPECT_EQ(restored, before);
}

TEST(TokenMasking, OfASequenceDoesNotDependOnTheOthers) {
  const tensors::PackedBatch together = mask_tokens(packed_batch({20, 33}), kMasking, kKey);
  tensors::PackedBatch second = packed_batch({33});
  second.input_ids = packed_batch({20, 33}).input_ids.narrow(0, 20, 33).clone();
  second.token_rows += 1;
  const tensors::PackedBatch alone = mask_tokens(second, kMasking, kKey);
  EXPECT_TRUE(alone.input_ids.equal(together.input_ids.narrow(0, 20, 33)));
  const int64_t of_first = kMasking.num_masked(20);
  EXPECT_TRUE((alone.masked + 20).equal(together.masked.slice(0, of_first)));
}

TEST(TokenMasking, IsAnotherOneWithAnotherKeyOrRow) {
  const tensors::PackedBatch batch = packed_batch({200, 200});
  const tensors::PackedBatch one = mask_tokens(batch, kMasking, kKey);
  EXPECT_FALSE(mask_tokens(batch, kMasking, {5, 7}).masked.equal(one.masked));
  EXPECT_FALSE((one.masked.slice(0, 0, 30) + 200).equal(one.masked.slice(0, 30)));
}

// Of 25500 masked tokens the shares are within four standard deviations.
TEST(TokenMasking, ReplacesMostByTheMaskAndSomeByAnyTokenAndSpreadsEvenly) {
  const std::vector<int32_t> lengths(500, 342);  // 340 candidates, 51 masked
  tensors::PackedBatch batch = packed_batch(lengths);
  batch.input_ids.fill_(kWords);  // which no replacement is
  const tensors::PackedBatch masked = mask_tokens(batch, kMasking, kKey);
  const auto ids = values<int32_t>(masked.input_ids);
  double masks = 0, kept = 0, low = 0, others = 0, front = 0;
  for (const int64_t place : values<int64_t>(masked.masked)) {
    const int32_t id = ids[static_cast<size_t>(place)];
    ASSERT_TRUE(id >= 0 && id <= kWords);
    masks += id == kMask ? 1 : 0;
    kept += id == kWords ? 1 : 0;
    others += id != kMask && id != kWords ? 1 : 0;
    low += id != kMask && id < kWords / 2 ? 1 : 0;
    front += place % 342 <= 170 ? 1 : 0;
  }
  const double all = masks + kept + others;
  EXPECT_EQ(all, 25500);
  EXPECT_NEAR(masks / all, 0.8, 0.01);
  EXPECT_NEAR(kept / all, 0.1, 0.0075);
  EXPECT_NEAR(low / others, 0.5, 0.04);
  EXPECT_NEAR(front / all, 0.5, 0.0125);
}

}  // namespace
}  // namespace strake::models::token_masking_test
