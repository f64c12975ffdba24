#include "strake/kernels/packed_weights.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include "strake/core/error.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::packed_weights_test {
namespace {

constexpr int64_t kDepth = 70;
constexpr int64_t kColumns = 333;

// A weight [kColumns, kDepth] of each number and version, read as a product's right operand in either way.
class Weights {
 public:
  Weights() {
    for (uint64_t i = 0; i < kCount; ++i) values_.push_back(random_values<float>(kColumns * kDepth, i));
  }
  static constexpr uint64_t kCount = 6;
  MatrixOperand<float> transposed(uint64_t i) const { return {values_[i].data(), kDepth, Order::kColumns}; }
  MatrixOperand<float> as_is(uint64_t i) const { return {values_[i].data(), kDepth, Order::kRows}; }

 private:
  std::vector<std::vector<float>> values_;
};

bool is_packed(const PackedMatrix<float>& packed, const MatrixOperand<float>& b) {
  const PackedMatrix<float> alone(b, packed.depth(), packed.columns());
  return packed.bytes() == alone.bytes() && std::memcmp(packed.panels(), alone.panels(), alone.bytes()) == 0;
}

int64_t bytes_of_one() { return Packing<float>({}, kDepth, kColumns).floats() * 4; }

TEST(PackedWeights, GivesWhatWasPackedUnderTheName) {
  const Weights weights;
  PackedWeights packed(8 * bytes_of_one());
  const auto first = packed.get({.matrix = 1, .version = 1}, weights.transposed(0), kDepth, kColumns);
  EXPECT_TRUE(is_packed(first, weights.transposed(0)));
  // Values are the same under the same name, so whoever looks at others afterwards was given the first.
  const auto again = packed.get({.matrix = 1, .version = 1}, weights.transposed(1), kDepth, kColumns);
  EXPECT_EQ(again.panels(), first.panels());
  EXPECT_TRUE(is_packed(packed.get({.matrix = 1, .version = 2}, weights.transposed(1), kDepth, kColumns),
                        weights.transposed(1)));
  EXPECT_TRUE(is_packed(packed.get({.matrix = 2, .version = 1}, weights.transposed(2), kDepth, kColumns),
                        weights.transposed(2)));
  EXPECT_TRUE(is_packed(packed.get({.matrix = 1, .version = 1}, weights.as_is(0), kColumns, kDepth), weights.as_is(0)));
  EXPECT_EQ(packed.get({.matrix = 1, .version = 1}, weights.transposed(1), kDepth, kColumns).panels(), first.panels());
}

TEST(PackedWeights, KeepsTheLatestAndWhatIsInUse) {
  const Weights weights;
  PackedWeights packed(2 * bytes_of_one());
  const auto get = [&](uint64_t name, uint64_t values) {
    return packed.get({.matrix = name}, weights.transposed(values), kDepth, kColumns);
  };
  const PackedMatrix<float> used = get(0, 0);
  get(1, 1);
  get(0, 1);  // asked for again, so that the other is the oldest
  get(2, 2);
  EXPECT_TRUE(is_packed(get(0, 5), weights.transposed(0)));
  EXPECT_TRUE(is_packed(get(1, 5), weights.transposed(5))) << "was not driven out";
  get(3, 3);
  EXPECT_TRUE(is_packed(get(0, 4), weights.transposed(4))) << "was not driven out";
  EXPECT_TRUE(is_packed(used, weights.transposed(0)));
}

TEST(PackedWeights, KeepsNoneThatWouldDriveOutTheOthers) {
  const PackedWeights packed(2 * bytes_of_one());
  EXPECT_TRUE(packed.can_keep<float>(kDepth, kColumns));
  EXPECT_FALSE(packed.can_keep<float>(kDepth, 2 * kColumns));
}

TEST(PackedWeights, RefusesAnotherSizeUnderTheName) {
  const Weights weights;
  PackedWeights packed(8 * bytes_of_one());
  packed.get({.matrix = 1}, weights.transposed(0), kDepth, kColumns);
  EXPECT_THROW(packed.get({.matrix = 1}, weights.transposed(0), kDepth, kColumns / 2), Error);
}

// Ranks that come together, each with several threads, and at times of their own; the room is too small for all.
TEST(PackedWeights, ArePackedTogether) {
  const Weights weights;
  PackedWeights packed(2 * bytes_of_one());
  constexpr int kRanks = 3;
  std::barrier together(kRanks);
  std::vector<int> wrong(kRanks, 0);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const WithThreads threads(static_cast<int>(rank) + 1);
      for (uint64_t version = 0; version < 40; ++version) {
        if (version % 4 == 0) together.arrive_and_wait();
        for (uint64_t i = 0; i < Weights::kCount; ++i) {
          const PackedWeights::Name name{.matrix = i, .version = version};
          if (!is_packed(packed.get(name, weights.transposed(i), kDepth, kColumns), weights.transposed(i)) ||
              !is_packed(packed.get(name, weights.as_is(i), kColumns, kDepth), weights.as_is(i))) {
            ++wrong[rank];
          }
        }
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, std::vector<int>(kRanks, 0));
}

}  // namespace
}  // namespace strake::kernels::packed_weights_test
