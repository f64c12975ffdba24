#include "strake/kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "strake/core/error.h"
#include "strake/kernels/scratch.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::matmul_test {
namespace {

std::vector<Isa> rungs() { return usable_rungs_and({Isa::kAmx}); }

// The instruction VDPBF16PS and AMX add in an order of their own.
template <typename T>
bool adds_pairs(Isa isa) {
  return std::is_same_v<T, BFloat16> && isa >= Isa::kAvx512Bf16;
}

struct Shape {
  int64_t rows, columns, depth;
  Order a = Order::kRows;
  Order b = Order::kRows;
};

std::string text(const Shape& s, Isa isa) {
  return std::string(to_string(isa)) + " [" + std::to_string(s.rows) + ", " + std::to_string(s.depth) +
         (s.a == Order::kRows ? "]" : "]^T") + " [" + std::to_string(s.depth) + ", " + std::to_string(s.columns) +
         (s.b == Order::kRows ? "]" : "]^T");
}

constexpr int64_t kGap = 3;  // beyond the contiguous numbers of every operand and result

// Operands with gaps that hold NaN, which must not reach a result.
template <typename T>
struct Operands {
  explicit Operands(const Shape& shape)
      : a(make(shape.rows, shape.depth, shape.a, 1)),
        b(make(shape.depth, shape.columns, shape.b, 2)),
        bias(random_values<T>(shape.columns, 3)),
        a_view{a.data(), stride(shape.rows, shape.depth, shape.a), shape.a},
        b_view{b.data(), stride(shape.depth, shape.columns, shape.b), shape.b} {}
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  static int64_t stride(int64_t rows, int64_t columns, Order order) {
    return kGap + (order == Order::kRows ? columns : rows);
  }
  static std::vector<T> make(int64_t rows, int64_t columns, Order order, uint64_t seed) {
    const int64_t pitch = stride(rows, columns, order);
    const int64_t lines = order == Order::kRows ? rows : columns;
    std::vector<T> values = random_values<T>(lines * pitch, seed);
    for (int64_t i = 0; i < lines * pitch; ++i) {
      if (i % pitch >= pitch - kGap) values[static_cast<size_t>(i)] = from_float<T>(std::nanf(""));
    }
    return values;
  }

  std::vector<T> a, b, bias;
  MatrixOperand<T> a_view, b_view;
};

template <typename T, typename Out>
Matmul<T, Out> product(const Shape& shape, const Operands<T>& operands) {
  return {.rows = shape.rows,
          .columns = shape.columns,
          .depth = shape.depth,
          .a = operands.a_view,
          .b = operands.b_view,
          .result = {}};
}

// C with gaps, which must stay as they are; `c` is what C holds before.
template <typename T, typename Out>
std::vector<Out> run(Matmul<T, Out> args, Isa isa, std::vector<Out>* stored_product = nullptr, float before = 7.5F) {
  args.result.stride = args.columns + kGap;
  std::vector<Out> c(static_cast<size_t>(args.rows * args.result.stride), from_float<Out>(before));
  args.result.c = c.data();
  if (stored_product != nullptr) {
    *stored_product = c;
    args.result.product = stored_product->data();
  }
  matmul(args, isa);
  std::vector<Out> packed;
  for (int64_t i = 0; i < args.rows * args.result.stride; ++i) {
    const size_t at = static_cast<size_t>(i);
    if (i % args.result.stride < args.columns) {
      packed.push_back(c[at]);
    } else {
      EXPECT_EQ(to_float(c[at]), before) << "beyond a row";
    }
  }
  return packed;
}

// In double precision, and what |a| |b| sum up to.
template <typename T>
struct Exact {
  std::vector<double> sums, magnitudes;
  Exact(const Shape& s, const Operands<T>& operands) {
    const auto at = [](const MatrixOperand<T>& m, int64_t i, int64_t j) {
      return double{to_float(m.order == Order::kRows ? m.data[i * m.stride + j] : m.data[j * m.stride + i])};
    };
    for (int64_t i = 0; i < s.rows; ++i) {
      for (int64_t j = 0; j < s.columns; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (int64_t k = 0; k < s.depth; ++k) {
          const double term = at(operands.a_view, i, k) * at(operands.b_view, k, j);
          sum += term;
          magnitude += std::abs(term);
        }
        sums.push_back(sum);
        magnitudes.push_back(magnitude);
      }
    }
  }
};

void add_ragged_shapes(Order a, Order b, std::vector<Shape>& shapes) {
  for (const int64_t depth : {0, 1, 2, 16, 33, 97}) {
    for (const int64_t rows : {1, 5, 12, 13, 29}) {
      for (const int64_t columns : {1, 15, 17, 32, 45}) shapes.push_back({rows, columns, depth, a, b});
    }
  }
  // About the borders of the depth's blocks, of 512 units.
  for (const int64_t depth : {511, 512, 513, 1024, 1025, 1549}) shapes.push_back({14, 33, depth, a, b});
  // Whole tiles of AMX, several of them, in one piece of the depth and in three.
  shapes.push_back({130, 40, 384, a, b});
  shapes.push_back({150, 12, 1024, a, b});
  // So deep that they are walked through in blocks.
  shapes.push_back({70, 12, 1600, a, b});
  shapes.push_back({0, 5, 3, a, b});
  shapes.push_back({5, 0, 3, a, b});
  shapes.push_back({331, 70, 20, a, b});
  shapes.push_back({3, 2500, 20, a, b});
  if (a == b) shapes.push_back({7, 257, 8290, a, b});  // the depth is packed in pieces
}

std::vector<Shape> ragged_shapes() {
  std::vector<Shape> shapes;
  for (const Order a : {Order::kRows, Order::kColumns}) {
    for (const Order b : {Order::kRows, Order::kColumns}) add_ragged_shapes(a, b, shapes);
  }
  return shapes;
}

template <typename Pair>
class MatmulOf : public ::testing::Test {};
template <typename T, typename OutType>
struct Types {
  using In = T;
  using Out = OutType;
};
using TypePairs = ::testing::Types<Types<float, float>, Types<BFloat16, BFloat16>, Types<BFloat16, float>>;
TYPED_TEST_SUITE(MatmulOf, TypePairs);

TYPED_TEST(MatmulOf, SumsAreThoseOfTheReferenceBitForBitOrCloseWherePairsAreAdded) {
  using In = typename TypeParam::In;
  using Out = typename TypeParam::Out;
  for (const Shape& shape : ragged_shapes()) {
    const Operands<In> operands(shape);
    const auto want = run(product<In, Out>(shape, operands), Isa::kReference);
    const bool small = shape.rows * shape.columns * shape.depth < 2'000'000;
    const Exact<In> exact(small ? shape : Shape{0, 0, 0}, operands);
    for (const Isa isa : rungs()) {
      const auto got = run(product<In, Out>(shape, operands), isa);
      if (!adds_pairs<In>(isa)) {
        ASSERT_TRUE(same_bits(got, want)) << text(shape, isa);
      }
      if (!small) continue;
      // A sum is never larger than the sum of magnitudes, and each addition to it errs by 2^-24 of it at most; errors
      // have both signs, so that sixteen of them is much already. Then the result is rounded.
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(to_float(got[i]), exact.sums[i],
                    16 * 0x1p-24 * exact.magnitudes[i] + kRounding<Out> * std::abs(exact.sums[i]))
            << text(shape, isa) << " element " << i;
      }
    }
  }
}

TYPED_TEST(MatmulOf, AddsTheBiasBeforeRounding) {
  using In = typename TypeParam::In;
  using Out = typename TypeParam::Out;
  for (const Shape& shape : {Shape{1, 1, 5}, Shape{13, 45, 33}, Shape{25, 70, 800}}) {
    const Operands<In> operands(shape);
    for (const Isa isa : rungs()) {
      // Sums in fp32, from a product whose results are not rounded.
      const auto sums = run(product<In, float>(shape, operands), isa);
      Matmul<In, Out> args = product<In, Out>(shape, operands);
      args.result.bias = operands.bias.data();
      std::vector<Out> want;
      for (size_t i = 0; i < sums.size(); ++i) {
        want.push_back(from_float<Out>(sums[i] + to_float(operands.bias[i % operands.bias.size()])));
      }
      EXPECT_TRUE(same_bits(run(args, isa), want)) << text(shape, isa);
    }
  }
}

TEST(Matmul, AddsToCWhatItWouldStore) {
  for (const Shape& shape : {Shape{1, 1, 5}, Shape{13, 45, 33}, Shape{25, 70, 800}}) {
    const Operands<BFloat16> operands(shape);
    for (const Isa isa : rungs()) {
      Matmul<BFloat16, float> args = product<BFloat16, float>(shape, operands);
      std::vector<float> want = run(args, isa);
      for (float& value : want) value = 0.625F + value;
      args.result.store = Store::kAdd;
      EXPECT_TRUE(same_bits(run<BFloat16, float>(args, isa, nullptr, 0.625F), want)) << text(shape, isa);
    }
  }
}

template <typename T>
class MatmulActivationOf : public ::testing::Test {};
using MultipliedTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(MatmulActivationOf, MultipliedTypes);

TYPED_TEST(MatmulActivationOf, ActivatesAsASeparatePassOverTheStoredProductDoes) {
  const Shape shape{25, 70, 800};
  const Operands<TypeParam> operands(shape);
  const auto without_gaps = [&](const std::vector<TypeParam>& rows) {
    std::vector<TypeParam> dense;
    for (auto row = rows.begin(); row < rows.end(); row += shape.columns + kGap) {
      dense.insert(dense.end(), row, row + shape.columns);
    }
    return dense;
  };
  for (const Activation activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kRelu, Activation::kSilu,
                                      Activation::kTanh, Activation::kIdentity}) {
    for (const Isa isa : rungs()) {
      for (const TypeParam* bias : {static_cast<const TypeParam*>(nullptr), operands.bias.data()}) {
        const auto sums = run(product<TypeParam, TypeParam>(shape, operands), isa);
        std::vector<TypeParam> want(sums.size());
        bias_activation_forward<TypeParam>({.x = sums.data(),
                                            .bias = bias,
                                            .y = want.data(),
                                            .tokens = shape.rows,
                                            .columns = shape.columns,
                                            .activation = activation},
                                           isa);
        Matmul<TypeParam, TypeParam> args = product<TypeParam, TypeParam>(shape, operands);
        args.result.bias = bias;
        args.result.activation = activation;
        std::vector<TypeParam> stored;
        EXPECT_TRUE(same_bits(run(args, isa), want)) << text(shape, isa);
        EXPECT_TRUE(same_bits(run(args, isa, &stored), want)) << text(shape, isa);
        EXPECT_TRUE(same_bits(without_gaps(stored), sums)) << text(shape, isa);
      }
    }
  }
}

TYPED_TEST(MatmulOf, AnElementDependsOnItsRowColumnAndDepthAlone) {
  using In = typename TypeParam::In;
  using Out = typename TypeParam::Out;
  for (const int64_t depth : {50, 900, 960, 3200, 8290}) {
    const Shape shape{depth > 5000 ? 14 : 61, 275, depth};
    const Operands<In> operands(shape);
    // The last columns of rows [row, row + window.rows).
    const auto expect_window_of = [&](const std::vector<Out>& all, const Shape& window, int64_t row, Isa isa) {
      const int64_t column = shape.columns - window.columns;
      Matmul<In, Out> args = product<In, Out>(window, operands);
      args.a.data += row * args.a.stride;
      args.b.data += column;
      const auto part = run(args, isa);
      for (int64_t n = 0; n < window.rows * window.columns; ++n) {
        const int64_t i = n / window.columns;
        const int64_t j = n % window.columns;
        ASSERT_EQ(to_float(part[static_cast<size_t>(n)]),
                  to_float(all[static_cast<size_t>((row + i) * shape.columns + column + j)]))
            << text(window, isa) << " at row " << row << ", element " << i << ", " << j;
      }
    };
    for (const Isa isa : rungs()) {
      if (isa == Isa::kReference && depth > 1000) continue;  // slow
      const auto all = run(product<In, Out>(shape, operands), isa);
      for (const Shape& window : {Shape{1, 1, depth}, Shape{1, 275, depth}, Shape{7, 40, depth}, Shape{13, 1, depth}}) {
        expect_window_of(all, window, 0, isa);
        expect_window_of(all, window, 1, isa);
        expect_window_of(all, window, shape.rows - window.rows, isa);
      }
    }
  }
}

TYPED_TEST(MatmulOf, RowsThatNeedNoPackingGiveTheSameBits) {
  using In = typename TypeParam::In;
  using Out = typename TypeParam::Out;
  for (const int64_t depth : {64, 960, 1696}) {
    for (const int64_t rows : {1, 16, 31, 32, 33, 200}) {
      const Shape shape{rows, 70, depth};
      const Operands<In> operands(shape);
      const int64_t stride = row_stride<In>(depth);
      AlignedFloats memory(rows * stride);  // of which bf16 needs half
      auto* const a = reinterpret_cast<In*>(memory.data());
      std::fill_n(a, rows * stride, from_float<In>(std::nanf("")));
      for (int64_t i = 0; i < rows; ++i) std::copy_n(operands.a.data() + i * (depth + kGap), depth, a + i * stride);
      for (const Isa isa : rungs()) {
        if (isa == Isa::kReference) continue;  // slow, and without packing
        Matmul<In, Out> args = product<In, Out>(shape, operands);
        const auto want = run(args, isa);
        args.a = {a, stride, Order::kRows};
        EXPECT_TRUE(same_bits(run(args, isa), want)) << text(shape, isa);
      }
    }
  }
}

TYPED_TEST(MatmulOf, NeitherThreadsNorPackingOnceChangeABit) {
  using In = typename TypeParam::In;
  using Out = typename TypeParam::Out;
  for (const Shape& shape : {Shape{200, 275, 900}, Shape{200, 275, 960}, Shape{200, 275, 1696},
                             Shape{3, 1000, 2000, Order::kRows, Order::kColumns}, Shape{1500, 8, 400},
                             Shape{40, 260, 8290}, Shape{33, 260, 16'650}}) {
    const Operands<In> operands(shape);
    const Matmul<In, Out> args = product<In, Out>(shape, operands);
    for (const Isa isa : rungs()) {
      if (isa == Isa::kReference) continue;  // slow, and without anything that depends on threads
      const auto one = [&] {
        const WithThreads threads(1);
        return run(args, isa);
      }();
      for (const int count : {2, 3, 5, 8}) {
        const WithThreads threads(count);
        EXPECT_TRUE(same_bits(run(args, isa), one)) << text(shape, isa) << " with " << count << " threads";
        const PackedMatrix<In> packed(args.b, shape.depth, shape.columns, isa);
        std::vector<Out> c(one.size());
        Matmul<In, Out> with_packed = args;
        with_packed.b = {};
        with_packed.result = {.c = c.data(), .stride = shape.columns};
        matmul(with_packed, packed);
        EXPECT_TRUE(same_bits(c, one)) << text(shape, isa) << " packed, with " << count << " threads";
      }
    }
  }
}

// Scratch with more behind it, which nobody may touch.
class GuardedScratch {
 public:
  explicit GuardedScratch(int64_t floats) : floats_(floats), memory_(floats + kGuard) {
    std::fill_n(memory_.data(), memory_.count(), kUntouched);
  }
  float* data() { return memory_.data(); }
  bool is_whole() const {
    return std::all_of(memory_.data() + floats_, memory_.data() + memory_.count(),
                       [](float value) { return value == kUntouched; });
  }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr float kUntouched = -12345.0F;
  int64_t floats_;
  AlignedFloats memory_;
};

// C by matmul_on_thread, in parts, each of which stays within its scratch.
template <typename In, typename Out>
std::vector<Out> run_in_parts(Matmul<In, Out> args, const PackedMatrix<In>& packed, int count) {
  std::vector<Out> c(static_cast<size_t>(args.rows * args.columns));
  args.b = {};
  args.result = {.c = c.data(), .stride = args.columns};
  for (int i = 0; i < count; ++i) {
    GuardedScratch scratch(matmul_scratch<In, Out>(args.rows, packed, count));
    matmul_on_thread(args, packed, scratch.data(), {.index = i, .count = count});
    EXPECT_TRUE(scratch.is_whole()) << "part " << i << " of " << count;
  }
  return c;
}

TYPED_TEST(MatmulOf, OnOneThreadHasTheSameBitsInAnyBlocksAndStaysWithinItsScratch) {
  using In = typename TypeParam::In;
  using Out = typename TypeParam::Out;
  const std::vector<CacheBlocks> all_blocks{{}, {1, 1}, {100'000, 64}, {int64_t{64} << 20, 1'000'000}};
  for (const Shape& shape : {Shape{200, 275, 900}, Shape{200, 275, 960}, Shape{200, 70, 1696}, Shape{1500, 8, 400},
                             Shape{1, 70, 2500}, Shape{0, 70, 30}}) {
    const Operands<In> operands(shape);
    const Matmul<In, Out> args = product<In, Out>(shape, operands);
    for (size_t i = 0; i < rungs().size() * all_blocks.size(); ++i) {
      const Isa isa = rungs()[i / all_blocks.size()];
      const CacheBlocks& blocks = all_blocks[i % all_blocks.size()];
      if (isa == Isa::kReference && (shape.rows > 200 || blocks != CacheBlocks{})) continue;  // slow
      const std::vector<Out> want = run(args, isa);
      const PackedMatrix<In> first(args.b, shape.depth, shape.columns, isa);
      const auto packed = PackedMatrix<In>(first.memory(), shape.depth, shape.columns, isa).in_blocks(blocks);
      std::vector<Out> c(want.size());
      Matmul<In, Out> with_packed = args;
      with_packed.b = {};
      with_packed.result = {.c = c.data(), .stride = shape.columns};
      matmul(with_packed, packed);
      EXPECT_TRUE(same_bits(c, want)) << text(shape, isa);
      for (const int count : {1, 2, 3, 8}) {
        EXPECT_TRUE(same_bits(run_in_parts(args, packed, count), want)) << text(shape, isa) << " in " << count;
      }
      // Fewer rows never need more than was said for more of them.
      for (int64_t rows = 1; rows < shape.rows; rows += 13) {
        EXPECT_LE((matmul_scratch<In, Out>(rows, packed)), (matmul_scratch<In, Out>(shape.rows, packed)))
            << text(shape, isa) << " " << rows;
      }
    }
  }
}

TEST(Matmul, DenormalNumbersCountExceptWherePairsAreAdded) {
  const std::vector<BFloat16> a{{0x0001}, {0x0000}};  // 2^-133
  const std::vector<BFloat16> b{from_float<BFloat16>(0x1p10F), from_float<BFloat16>(1.0F)};
  for (const Isa isa : rungs()) {
    float c = -1;
    matmul<BFloat16, float>(
        {.rows = 1, .columns = 1, .depth = 2, .a = {a.data(), 2}, .b = {b.data(), 1}, .result = {.c = &c, .stride = 1}},
        isa);
    EXPECT_EQ(c, isa >= Isa::kAvx512Bf16 ? 0.0F : 0x1p-123F) << to_string(isa);
  }
}

TEST(Matmul, RefusesWhatItCannotMean) {
  const std::vector<float> x(6, 1.0F);
  std::vector<float> c(4);
  const Matmul<float, float> good{.rows = 2,
                                  .columns = 2,
                                  .depth = 3,
                                  .a = {x.data(), 3},
                                  .b = {x.data(), 2},
                                  .result = {.c = c.data(), .stride = 2}};
  EXPECT_NO_THROW(matmul(good));
  const auto refused = [&](auto change) {
    Matmul<float, float> bad = good;
    change(bad);
    EXPECT_THROW(matmul(bad), Error);
  };
  refused([](auto& m) { m.rows = -1; });
  refused([](auto& m) { m.a.stride = 2; });
  refused([](auto& m) { m.b.stride = 1; });
  refused([](auto& m) { m.b.order = Order::kColumns; });
  refused([](auto& m) { m.result.stride = 1; });
  refused([&](auto& m) { m.result.store = Store::kAdd, m.result.bias = x.data(); });
  refused([&](auto& m) { m.result.product = c.data(); });
  const PackedMatrix<float> packed(good.b, 3, 2);
  Matmul<float, float> other = good;
  other.columns = 1;
  EXPECT_THROW(matmul(other, packed), Error);
  EXPECT_THROW(PackedMatrix<float>(good.b, 3, 3), Error);
  const WithThreads two(2);
  const std::vector<float> wide(192);
  EXPECT_THROW(PackedMatrix<float>({wide.data(), 63}, 3, 64), Error) << "and not in a thread of a team";
  EXPECT_THROW(PackedMatrix<float>(packed.memory(), 3000, 2), Error);
}

}  // namespace
}  // namespace strake::kernels::matmul_test
