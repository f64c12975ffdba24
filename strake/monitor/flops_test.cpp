#include "strake/monitor/flops.h"

#include <gtest/gtest.h>

#include <array>

namespace strake::monitor {
namespace {

constexpr EncoderShape kTiny{.num_layers = 2, .hidden_size = 4, .intermediate_size = 16, .num_labels = 3};

// Counts every multiply and add of every matrix product, one product at a time.
double counted_forward_flops(const EncoderShape& shape, const std::array<int64_t, 3>& lengths) {
  const auto product = [](int64_t rows, int64_t inner, int64_t columns) {
    return static_cast<double>(2 * rows * inner * columns);
  };
  double flops = 0;
  for (const int64_t length : lengths) {
    for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
      for (int projection = 0; projection < 4; ++projection) {
        flops += product(length, shape.hidden_size, shape.hidden_size);
      }
      flops += product(length, shape.hidden_size, length);  // scores, all heads together
      flops += product(length, length, shape.hidden_size);  // weighted values
      flops += product(length, shape.hidden_size, shape.intermediate_size);
      flops += product(length, shape.intermediate_size, shape.hidden_size);
    }
    flops += product(1, shape.hidden_size, shape.hidden_size);
    flops += product(1, shape.hidden_size, shape.num_labels);
  }
  return flops;
}

TEST(Flops, ForwardEqualsTheSumOverMatrixProducts) {
  const std::array<int32_t, 4> offsets{0, 5, 6, 13};
  const double flops = forward_flops(kTiny, packed_work(offsets));
  EXPECT_EQ(flops, counted_forward_flops(kTiny, {5, 1, 7}));  // whole numbers below 2^53: exact
  EXPECT_EQ(training_flops(kTiny, packed_work(offsets)), 3 * flops);
}

TEST(Flops, OfADecoderCountWhatEachPositionSees) {
  const DecoderShape shape{.num_layers = 2, .hidden_size = 4, .intermediate_size = 16, .vocab_size = 50};
  double expected = 0;
  for (const int64_t length : {5, 1, 7}) {
    for (int64_t position = 0; position < length; ++position) {
      const auto seen = static_cast<double>(position + 1);
      expected += 2 * (2 * (4 * 4 * 4 + 2 * 4 * 16) + 2 * (2 * 4 * seen));
      if (position > 0) expected += 2 * 4 * 50;
    }
  }
  const std::array<int32_t, 4> offsets{0, 5, 6, 13};
  EXPECT_EQ(forward_flops(shape, packed_work(offsets)), expected);
  EXPECT_EQ(training_flops(shape, packed_work(offsets)), 3 * expected);
}

TEST(Flops, WorkOfBatchesAddsUp) {
  const std::array<int32_t, 4> whole{0, 5, 6, 13};
  const std::array<int32_t, 3> first{0, 5, 6};
  const std::array<int32_t, 2> second{0, 7};
  PackedWork sum = packed_work(first);
  sum += packed_work(second);
  EXPECT_EQ(sum.tokens, 13);
  EXPECT_EQ(sum.sequences, 3);
  EXPECT_EQ(sum.squared_lengths, 25 + 1 + 49);
  EXPECT_EQ(forward_flops(kTiny, sum), forward_flops(kTiny, packed_work(whole)));
}

TEST(Flops, AnEmptyBatchCostsNothing) { EXPECT_EQ(forward_flops(kTiny, packed_work({})), 0); }

}  // namespace
}  // namespace strake::monitor
