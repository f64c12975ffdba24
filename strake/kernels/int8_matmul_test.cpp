#include "strake/kernels/int8_matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/test_error.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::int8_matmul_test {
namespace {

std::vector<Isa> rungs() { return usable_rungs_and({Isa::kAvx512Vnni, Isa::kAmx}); }

struct Shape {
  int64_t rows, columns, depth;
};

std::string text(const Shape& s, Isa isa) {
  return std::string(to_string(isa)) + " [" + std::to_string(s.rows) + ", " + std::to_string(s.depth) + "] [" +
         std::to_string(s.depth) + ", " + std::to_string(s.columns) + "]";
}

// Around tiles of 6 and 12 rows, panels of 16 and 32 columns and units of 2 and 4; blocks of rows: 256 KiB of 4096
// numbers are 64 rows.
const std::vector<Shape> kShapes{{1, 1, 1},      {1, 33, 7},      {5, 16, 64},    {6, 31, 65},
                                 {7, 32, 2},     {12, 48, 128},   {13, 70, 130},  {25, 100, 66},
                                 {150, 40, 770}, {150, 33, 4097}, {3, 200, 3072}, {40, 5, 0}};

constexpr int64_t kGap = 3;  // beyond the contiguous numbers of every row

// A's gaps hold NaN, which must not reach a result.
struct Operands {
  explicit Operands(const Shape& shape, float scale = 1)
      : a(random_values<BFloat16>(shape.rows * (shape.depth + kGap), 1, scale)),
        weight(random_values<float>(shape.columns * shape.depth, 2, 0.05F)),
        bias(random_values<float>(shape.columns, 3)) {
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t gap = 0; gap < kGap; ++gap) {
        a[static_cast<size_t>(row * (shape.depth + kGap) + shape.depth + gap)] = to_bfloat16(std::nanf(""));
      }
    }
  }
  std::vector<BFloat16> a;
  std::vector<float> weight, bias;
};

template <typename Out>
struct Product {
  std::vector<Out> c;  // [rows, columns + kGap], with 77 in the gaps
  int64_t first_bad = kAllRowsFinite;
};

// Rows with their memory, in which there is something else before they are quantized.
class QuantizedArray {
 public:
  QuantizedArray(const Shape& shape, const Operands& operands, Isa isa)
      : capacity_(whole_tiles(shape.rows)), memory_(capacity_ * (quantized_stride(shape.depth) / 4 + 1)) {
    std::fill_n(memory_.data(), memory_.count(), 5.0F);
    quantize_rows({operands.a.data(), shape.depth + kGap, shape.rows, shape.depth}, rows(shape), isa);
  }
  QuantizedRows rows(const Shape& shape) {
    const int64_t stride = quantized_stride(shape.depth);
    return {reinterpret_cast<int8_t*>(memory_.data()), stride, memory_.data() + capacity_ * stride / 4};
  }

 private:
  int64_t capacity_;
  AlignedFloats memory_;
};

template <typename Out>
Product<Out> multiply_parts(const Shape& shape, const QuantizedMatrix& b, Int8Matmul<Out> args, int parts) {
  const int64_t stride = shape.columns + kGap;
  Product<Out> result{std::vector<Out>(static_cast<size_t>(shape.rows * stride), from_float<Out>(77))};
  args.c = result.c.data();
  args.c_stride = stride;
  constexpr int64_t kGuard = 16;
  for (int i = 0; i < parts; ++i) {
    AlignedFloats scratch(int8_matmul_scratch(shape.rows, b) + kGuard);
    float* const guard = scratch.data() + int8_matmul_scratch(shape.rows, b);
    std::fill_n(guard, kGuard, 5.0F);
    const int64_t bad = int8_matmul_on_thread<Out>(args, b, scratch.data(), {.index = i, .count = parts});
    const bool first = bad != kAllRowsFinite && (result.first_bad == kAllRowsFinite || bad < result.first_bad);
    if (first) result.first_bad = bad;
    EXPECT_EQ(std::count(guard, guard + kGuard, 5.0F), kGuard) << "more scratch was used than asked for";
  }
  return result;
}

// With rows that the product quantizes, and the same with rows that were quantized before.
template <typename Out>
Product<Out> multiply(const Shape& shape, const Operands& operands, const QuantizedMatrix& b,
                      std::optional<Activation> activation = std::nullopt, int parts = 1) {
  Int8Matmul<Out> args{.rows = shape.rows, .bias = operands.bias.data(), .activation = activation};
  QuantizedArray quantized(shape, operands, b.isa());
  args.quantized = quantized.rows(shape);
  const auto from_quantized = multiply_parts<Out>(shape, b, args, parts);
  args.quantized = {};
  args.a = operands.a.data();
  args.a_stride = shape.depth + kGap;
  const auto result = multiply_parts<Out>(shape, b, args, parts);
  EXPECT_TRUE(same_bits(from_quantized.c, result.c)) << text(shape, b.isa());
  EXPECT_EQ(from_quantized.first_bad, result.first_bad) << text(shape, b.isa());
  return result;
}

template <typename Out>
Product<Out> multiply(const Shape& shape, const Operands& operands, Isa isa,
                      std::optional<Activation> activation = std::nullopt) {
  return multiply<Out>(shape, operands, {operands.weight.data(), shape.depth, shape.columns, isa}, activation);
}

// The quantization's definition, in another way than the code's.
struct Quantized {
  std::vector<int64_t> q;
  float scale;
};
int64_t rounded(float x, float inverse) { return std::lrint(x * inverse); }
int64_t rounded(BFloat16 x, float inverse) { return std::lrint(double{to_float(x)} * double{inverse}); }  // exact
template <typename T>
Quantized quantize(const T* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(to_float(x[i])));
  Quantized result{{}, largest / 127.0F};
  for (int64_t i = 0; i < count; ++i) {
    result.q.push_back(largest == 0 ? 0 : rounded(x[i], 127.0F / largest));
  }
  return result;
}

float expected(const Shape& shape, const Operands& operands, int64_t row, int64_t column) {
  const Quantized a = quantize(operands.a.data() + row * (shape.depth + kGap), shape.depth);
  const Quantized b = quantize(operands.weight.data() + column * shape.depth, shape.depth);
  int64_t sum = 0;
  for (size_t k = 0; k < a.q.size(); ++k) sum += a.q[k] * b.q[k];
  return std::fma(static_cast<float>(sum), a.scale * b.scale, operands.bias[static_cast<size_t>(column)]);
}

TEST(Int8Matmul, IsTheScaledSumOfTheQuantizedNumbersToTheLastBitOnEveryRung) {
  for (const Shape& shape : kShapes) {
    const Operands operands(shape);
    for (const Isa isa : rungs()) {
      const auto product = multiply<float>(shape, operands, isa);
      const auto rounded = multiply<BFloat16>(shape, operands, isa);
      EXPECT_EQ(product.first_bad, kAllRowsFinite);
      const auto is_right = [&](int64_t row, int64_t column) {
        const auto i = static_cast<size_t>(row * (shape.columns + kGap) + column);
        const float want = column < shape.columns ? expected(shape, operands, row, column) : 77.0F;
        return product.c[i] == want && rounded.c[i].bits == to_bfloat16(want).bits;
      };
      int wrong = 0;
      for (int64_t row = 0; row < shape.rows; row += std::max<int64_t>(1, shape.rows / 9)) {
        for (int64_t column = 0; column < shape.columns + kGap; ++column) wrong += is_right(row, column) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << text(shape, isa);
    }
  }
}

// Half of the largest number is 63.5 steps, or a little less, as 127 / largest is rounded.
TEST(Int8Matmul, RoundsNumbersOfARowOnce) {
  const Shape shape{128, 20, 100};
  Operands operands(shape);
  for (int64_t row = 0; row < shape.rows; ++row) {
    const float largest = 1.0F + static_cast<float>(row) / 128.0F;
    const auto x = operands.a.begin() + row * (shape.depth + kGap);
    for (int64_t k = 0; k < shape.depth; ++k) x[k] = to_bfloat16(k % 7 == 0 ? largest : largest / 2);
  }
  for (const Isa isa : rungs()) {
    const auto product = multiply<float>(shape, operands, isa);
    int wrong = 0;
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t column = 0; column < shape.columns; ++column) {
        const float got = product.c[static_cast<size_t>(row * (shape.columns + kGap) + column)];
        wrong += got == expected(shape, operands, row, column) ? 0 : 1;
      }
    }
    EXPECT_EQ(wrong, 0) << to_string(isa);
  }
}

// Each quantized number is wrong by half a step of 1/127 of the largest magnitude at most, an error that is spread
// evenly: with normal numbers, whose largest of 768 is about 3.3 sigma, 0.75 % of sigma for each of two operands.
TEST(Int8Matmul, IsNearTheExactProduct) {
  const Shape shape{50, 60, 768};
  const Operands operands(shape);
  const auto product = multiply<float>(shape, operands, best_isa());
  double error = 0, square = 0;
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t column = 0; column < shape.columns; ++column) {
      double exact = 0;
      for (int64_t k = 0; k < shape.depth; ++k) {
        exact += static_cast<double>(to_float(operands.a[static_cast<size_t>(row * (shape.depth + kGap) + k)])) *
                 operands.weight[static_cast<size_t>(column * shape.depth + k)];
      }
      const double got = product.c[static_cast<size_t>(row * (shape.columns + kGap) + column)] -
                         operands.bias[static_cast<size_t>(column)];
      error += (got - exact) * (got - exact);
      square += exact * exact;
    }
  }
  EXPECT_LT(std::sqrt(error / square), 0.0125);
  EXPECT_GT(std::sqrt(error / square), 0.005) << "else it was not computed in int8";
}

TEST(Int8Matmul, TakesTheLargestNumbersThatThereAreWithoutSaturation) {
  const Shape shape{13, 33, kMostInt8Depth};
  Operands operands(shape);
  std::ranges::fill(operands.weight, -0.5F);
  std::ranges::fill(operands.a, to_bfloat16(-2.0F));
  std::ranges::fill(operands.bias, 0.0F);
  const float want = 127.0F * 127.0F * kMostInt8Depth * ((2.0F / 127.0F) * (0.5F / 127.0F));
  for (const Isa isa : rungs()) {
    const auto product = multiply<float>(shape, operands, isa);
    EXPECT_EQ(product.c[0], want) << to_string(isa);
    EXPECT_EQ(product.c[12 * (33 + kGap) + 32], want) << to_string(isa);
  }
}

// Vector rungs share their arithmetic; the reference takes functions of the standard library. Errors as in
// bias_activation.h, then a rounding to BFloat16.
TEST(Int8Matmul, ActivatesWhatItStores) {
  const Shape shape{30, 70, 200};
  const Operands operands(shape);
  for (const Activation activation :
       {Activation::kGelu, Activation::kGeluTanh, Activation::kRelu, Activation::kSilu, Activation::kTanh}) {
    const QuantizedMatrix lowest(operands.weight.data(), shape.depth, shape.columns, Isa::kReference);
    const auto want = multiply<BFloat16>(shape, operands, lowest, activation);
    const auto wide_want = multiply<float>(shape, operands, lowest, activation);
    EXPECT_FALSE(same_bits(want.c, multiply<BFloat16>(shape, operands, lowest).c));
    for (const Isa isa : rungs()) {
      const std::string what = std::string(to_string(isa)) + " " + std::to_string(static_cast<int>(activation));
      expect_close(multiply<BFloat16>(shape, operands, isa, activation).c, doubles(want.c), 1e-4, 1.0 / 128, what);
      expect_close(multiply<float>(shape, operands, isa, activation).c, doubles(wide_want.c), 1e-6, 1e-5, what);
    }
    if (!usable(Isa::kAvx512)) continue;
    if (activation == Activation::kGelu || activation == Activation::kRelu) {  // without a division
      EXPECT_TRUE(same_bits(multiply<BFloat16>(shape, operands, Isa::kAvx2, activation).c,
                            multiply<BFloat16>(shape, operands, best_isa(), activation).c));
    }
  }
}

TEST(Int8Matmul, GivesARowTheSameBitsWhateverItsNeighbours) {
  const Shape shape{149, 70, 1000};
  const Operands operands(shape);
  for (const Isa isa : rungs()) {
    const QuantizedMatrix first(operands.weight.data(), shape.depth, shape.columns, isa);
    const QuantizedMatrix b(first.memory(), shape.depth, shape.columns, isa);
    const auto all = multiply<BFloat16>(shape, operands, b, Activation::kGelu);
    const int64_t stride = shape.columns + kGap;
    for (const int64_t row : {0, 1, 11, 70, 148}) {
      Operands alone(shape);
      alone.a.assign(operands.a.begin() + row * (shape.depth + kGap),
                     operands.a.begin() + (row + 1) * (shape.depth + kGap));
      const auto one = multiply<BFloat16>({1, shape.columns, shape.depth}, alone, b, Activation::kGelu);
      const std::vector<BFloat16> same(all.c.begin() + row * stride, all.c.begin() + (row + 1) * stride);
      EXPECT_TRUE(same_bits(one.c, same)) << to_string(isa) << " row " << row;
    }
  }
}

TEST(Int8Matmul, HasTheSameBitsInPartsAndInAnyBlocks) {
  for (const Shape& shape : {Shape{149, 70, 1000}, Shape{1, 300, 90}, Shape{40, 5, 64}}) {
    Operands operands(shape);
    operands.a[operands.a.size() / 2] = to_bfloat16(std::numeric_limits<float>::infinity());
    for (const Isa isa : rungs()) {
      const QuantizedMatrix b(operands.weight.data(), shape.depth, shape.columns, isa);
      const auto all = multiply<BFloat16>(shape, operands, b, Activation::kGelu);
      for (const int parts : {2, 3, 8}) {
        const auto product = multiply<BFloat16>(shape, operands, b, Activation::kGelu, parts);
        EXPECT_TRUE(same_bits(product.c, all.c)) << to_string(isa) << " in " << parts << " parts";
        EXPECT_EQ(product.first_bad, all.first_bad) << to_string(isa) << " in " << parts << " parts";
      }
      for (const int64_t bytes : {1, 30'000, 100'000'000}) {
        const auto product = multiply<BFloat16>(shape, operands, b.in_blocks({.rows_bytes = bytes}), Activation::kGelu);
        EXPECT_TRUE(same_bits(product.c, all.c)) << to_string(isa) << " in blocks of " << bytes << " bytes";
        EXPECT_EQ(product.first_bad, all.first_bad) << to_string(isa) << " in blocks of " << bytes << " bytes";
      }
    }
  }
}

TEST(Int8Matmul, PacksTheSameWhateverTheThreads) {
  const Shape shape{20, 100, 77};
  const Operands operands(shape);
  const WithThreads one(1);
  const auto want = multiply<float>(shape, operands, best_isa());
  const WithThreads three(3);
  EXPECT_TRUE(same_bits(multiply<float>(shape, operands, best_isa()).c, want.c));
}

TEST(Int8Matmul, TakesRowsAndColumnsOfNothingAsNothing) {
  const Shape shape{3, 20, 40};
  Operands operands(shape);
  std::fill_n(operands.a.begin(), 40, to_bfloat16(0));
  std::fill_n(operands.a.begin() + 43, 40, to_bfloat16(1e-36F));  // 127 / 1e-36 is above 1e38
  std::fill_n(operands.weight.begin() + 40, 40, 1e-41F);
  for (const Isa isa : rungs()) {
    const auto product = multiply<float>(shape, operands, isa);
    for (int64_t column = 0; column < 20; ++column) {
      EXPECT_EQ(product.c[static_cast<size_t>(column)], operands.bias[static_cast<size_t>(column)]) << to_string(isa);
      EXPECT_EQ(product.c[static_cast<size_t>(23 + column)], operands.bias[static_cast<size_t>(column)]);
    }
    EXPECT_EQ(product.c[size_t{2} * 23 + 1], operands.bias[1]) << to_string(isa);
    EXPECT_NE(product.c[size_t{2} * 23], operands.bias[0]) << to_string(isa);
  }
}

TEST(Int8Matmul, NamesTheFirstRowThatIsNotFiniteAndMakesItsResultsNan) {
  const Shape shape{40, 20, 100};
  const Operands finite(shape);
  const auto expect_named = [&](const Operands& operands, Isa isa) {
    const auto product = multiply<BFloat16>(shape, operands, isa, Activation::kGelu);
    EXPECT_EQ(product.first_bad, 14) << to_string(isa);
    for (int64_t row = 0; row < shape.rows; ++row) {
      EXPECT_EQ(std::isnan(to_float(product.c[static_cast<size_t>(row * 23 + 19)])), row == 14 || row == 30);
    }
  };
  for (const float bad : {std::nanf(""), -std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const int64_t place : {0, 17, 31, 64, 99}) {
      Operands operands = finite;
      for (const int64_t row : {14, 30}) operands.a[static_cast<size_t>(row * 103 + place)] = to_bfloat16(bad);
      for (const Isa isa : rungs()) expect_named(operands, isa);
    }
  }
}

TEST(Int8Matmul, RefusesWeightsThatAreNotFiniteAndWrongStrides) {
  std::vector<float> weight(60, 1.0F);
  const QuantizedMatrix b(weight.data(), 20, 3);
  std::vector<BFloat16> a(20), c(3);
  const Int8Matmul<BFloat16> narrow{.rows = 1, .a = a.data(), .a_stride = 19, .c = c.data(), .c_stride = 3};
  EXPECT_THROW(int8_matmul_on_thread(narrow, b, nullptr), Error);
  EXPECT_THROW(quantize_rows({a.data(), 20, 1, 20}, {nullptr, 20, nullptr}), Error);
  EXPECT_THROW(quantize_rows({a.data(), 19, 1, 20}, {nullptr, quantized_stride(20), nullptr}), Error);
  const Int8Matmul<BFloat16> short_rows{.rows = 1, .a = a.data(), .a_stride = 20, .c = c.data(), .c_stride = 2};
  EXPECT_THROW(int8_matmul_on_thread(short_rows, b, nullptr), Error);
  EXPECT_THROW(QuantizedMatrix(nullptr, kMostInt8Depth + 1, 0), Error);
  EXPECT_THROW(QuantizedMatrix(b.memory(), 2000, 3), Error);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    weight[25] = bad;
    EXPECT_TRUE(error_of([&] {
                  const QuantizedMatrix refused(weight.data(), 20, 3);
                }).says(ErrorKind::kNumeric, "row 1 of the weight"));
  }
}

}  // namespace
}  // namespace strake::kernels::int8_matmul_test
