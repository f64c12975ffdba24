#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "strake/core/error.h"
#include "strake/kernels/column_sum.h"
#include "strake/kernels/convert.h"
#include "strake/kernels/global_norm.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::sums_test {
namespace {

template <typename T>
class Sums : public ::testing::Test {};
TYPED_TEST_SUITE(Sums, StorageTypes);

template <typename T>
void expect_column_sums(int64_t tokens, int64_t columns) {
  const int64_t stride = columns + 3;
  const auto x = random_values<T>(tokens * stride, 1);
  std::vector<double> want(static_cast<size_t>(columns));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < columns; ++c) {
      want[static_cast<size_t>(c)] += to_float(x[static_cast<size_t>(t * stride + c)]);
    }
  }
  for (const Isa isa : usable_rungs()) {
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 3}) {
      const WithThreads scope(threads);
      results.emplace_back(columns, 99.0F);
      column_sum<T>(
          {.x = x.data(), .stride = stride, .out = results.back().data(), .tokens = tokens, .columns = columns}, isa);
    }
    expect_close(results[0], want, 2e-5, 1e-6, to_string(isa));  // fp32 sums of up to 333 values of size 1
    EXPECT_TRUE(same_bits(results[0], results[1]) && same_bits(results[0], results[2])) << to_string(isa);
  }
}

TYPED_TEST(Sums, OfColumnsAreRightAndIndependentOfThreadsInEveryRung) {
  for (const int64_t columns : {1, 15, 16, 33, 70}) {
    for (const int64_t tokens : {0, 1, 3, 64, 65, 333}) expect_column_sums<TypeParam>(tokens, columns);
  }
}

TYPED_TEST(Sums, OfSquaresAreRightAndIndependentOfThreadsInEveryRung) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{17}, kSquaresChunk, 3 * kSquaresChunk + 777}) {
    const auto x = random_values<TypeParam>(count, 1);
    double want = 0;
    for (const double value : doubles(x)) want += value * value;
    for (const Isa isa : usable_rungs()) {
      std::vector<std::vector<double>> results;
      for (const int threads : {1, 2, 3}) {
        const WithThreads scope(threads);
        results.emplace_back(num_squares_chunks(count));
        sum_of_squares(x.data(), count, results.back(), isa);
      }
      EXPECT_NEAR(add_in_order(results[0]), want, 1e-11 * want) << to_string(isa);  // double sums in another order
      EXPECT_TRUE(same_bits(results[0], results[1]) && same_bits(results[0], results[2])) << to_string(isa);
    }
  }
}

TYPED_TEST(Sums, OfSquaresCarryNanAndDoNotOverflow) {
  const float large = std::is_same_v<TypeParam, Half> ? 65504.0F : 1e38F;
  const double square = double{large} * double{large};
  std::vector<TypeParam> x(100, from_float<TypeParam>(large));
  for (const Isa isa : usable_rungs()) {
    std::vector<double> partial(1);
    sum_of_squares(x.data(), 100, partial, isa);
    EXPECT_NEAR(partial[0] / (100 * square), 1.0, 0.01) << to_string(isa);  // BFloat16 rounds 1e38
    std::vector<TypeParam> bad = x;
    bad[77] = from_float<TypeParam>(std::numeric_limits<float>::quiet_NaN());
    sum_of_squares(bad.data(), 100, partial, isa);
    EXPECT_TRUE(std::isnan(partial[0])) << to_string(isa);
    EXPECT_THROW(sum_of_squares(x.data(), kSquaresChunk + 1, partial, isa), Error);
  }
}

template <typename T>
std::vector<float> floats(const std::vector<T>& values) {
  std::vector<float> wide;
  for (const T value : values) wide.push_back(to_float(value));
  return wide;
}

TEST(Conversion, OfBFloat16ToFloatAndBackIsTheIdentityForAllBits) {
  std::vector<BFloat16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = {static_cast<uint16_t>(i)};
  const std::vector<float> wide = floats(all);
  for (const Isa isa : usable_rungs()) {
    std::vector<BFloat16> back(all.size());
    convert(wide.data(), back.data(), 65536, isa);
    for (size_t i = 0; i < all.size(); ++i) {
      const bool nan = (i & 0x7F80) == 0x7F80 && (i & 0x7F) != 0;
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), i << 16) << to_string(isa);
      ASSERT_EQ(back[i].bits, nan ? 0x7FC0 : i) << to_string(isa);
    }
  }
}

TEST(Conversion, OfHalfToFloatAndBackIsTheIdentityForAllBits) {
  std::vector<Half> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = {static_cast<uint16_t>(i)};
  const std::vector<float> wide = floats(all);
  for (const Isa isa : usable_rungs()) {
    std::vector<Half> back(all.size());
    convert(wide.data(), back.data(), 65536, isa);
    for (size_t i = 0; i < all.size(); ++i) {
      const bool nan = (i & 0x7C00) == 0x7C00 && (i & 0x3FF) != 0;
      ASSERT_EQ(back[i].bits, nan ? i | 0x200 : i) << to_string(isa);
    }
  }
}

TEST(Conversion, ToHalfHasTheBitsOfTheReferenceInEveryRung) {
  const auto x = random_values<float>(5003, 1, 30000.0F);  // some beyond the largest Half
  std::vector<Half> want(x.size());
  convert(x.data(), want.data(), 5003, Isa::kReference);
  for (const Isa isa : usable_rungs()) {
    std::vector<Half> y(x.size());
    convert(x.data(), y.data(), 5003, isa);
    EXPECT_TRUE(same_bits(y, want)) << to_string(isa);
  }
}

TEST(Conversion, RoundsToTheNearestTiesToEvenInEveryRung) {
  const std::vector<uint32_t> from{0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF,
                                   0xFF7FFFFF, 0x00008000, 0x00018000, 0x7F800001, 0x80000000};
  const std::vector<uint16_t> want{0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0xFF80, 0x0000, 0x0002, 0x7FC0, 0x8000};
  for (size_t repeat = 1; repeat <= 3; ++repeat) {  // whole vectors and tails of each width
    std::vector<float> x;
    for (size_t i = 0; i < repeat * from.size(); ++i) x.push_back(std::bit_cast<float>(from[i % from.size()]));
    for (const Isa isa : usable_rungs()) {
      std::vector<BFloat16> y(x.size());
      convert(x.data(), y.data(), static_cast<int64_t>(x.size()), isa);
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i].bits, want[i % want.size()]) << to_string(isa) << " " << i;
    }
  }
}

}  // namespace
}  // namespace strake::kernels::sums_test
