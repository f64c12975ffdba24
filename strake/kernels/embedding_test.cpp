#include "strake/kernels/embedding.h"

#include <gtest/gtest.h>

#include <vector>

#include "strake/core/error.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::embedding_test {
namespace {

constexpr int64_t kTokens = 301;
constexpr int64_t kRows = 40;

std::vector<int32_t> random_ids(int64_t rows, uint32_t seed) {
  std::vector<int32_t> ids(kTokens);
  for (size_t t = 0; t < ids.size(); ++t) {
    const uint32_t word = philox({seed, 0}, {static_cast<uint32_t>(t), 0, 0, 0})[0];
    ids[t] = static_cast<int32_t>(word % static_cast<uint32_t>(rows));
  }
  return ids;
}

template <typename T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, StorageTypes);

template <typename T, typename Id>
void add_rows(const std::vector<T>& table, const std::vector<Id>& ids, std::vector<double>& sums) {
  const size_t columns = sums.size() / ids.size();
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i] += to_float(table[static_cast<size_t>(ids[i / columns]) * columns + i % columns]);
  }
}

// The result with three numbers between its rows, which stay as they are, without them.
template <typename T>
std::vector<T> rows_apart(EmbeddingForward<T> args, Isa isa) {
  args.stride = args.columns + 3;
  std::vector<T> out(static_cast<size_t>(args.tokens * args.stride), from_float<T>(-7.0F));
  args.out = out.data();
  embedding_forward<T>(args, isa);
  std::vector<T> rows;
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    if (i % args.stride < args.columns) {
      rows.push_back(out[static_cast<size_t>(i)]);
    } else {
      EXPECT_EQ(to_float(out[static_cast<size_t>(i)]), -7.0F) << "between rows";
    }
  }
  return rows;
}

TYPED_TEST(Embedding, AddsTheRowsOfItsTablesInEveryRung) {
  for (const int64_t columns : {1, 20, 64, 65}) {
    const auto word = random_values<TypeParam>(kRows * columns, 1);
    const auto position = random_values<TypeParam>(kRows * columns, 2);
    const auto type = random_values<TypeParam>(2 * columns, 3);
    const auto word_ids = random_ids(kRows, 1);
    const auto position_ids = random_ids(kRows, 2);
    const auto type_ids = random_ids(2, 3);
    for (const bool all_tables : {true, false}) {
      EmbeddingForward<TypeParam> args{
          .word = {word.data(), kRows, word_ids.data()}, .tokens = kTokens, .columns = columns};
      if (all_tables) {
        args.position = {position.data(), kRows, position_ids.data()};
        args.type = {type.data(), 2, type_ids.data()};
      }
      std::vector<double> want(static_cast<size_t>(kTokens * columns));
      add_rows(word, word_ids, want);
      if (all_tables) {
        add_rows(position, position_ids, want);
        add_rows(type, type_ids, want);
      }
      for (const Isa isa : usable_rungs()) {
        std::vector<TypeParam> out(want.size());
        args.out = out.data();
        embedding_forward<TypeParam>(args, isa);
        expect_close(out, want, 5e-7, kRounding<TypeParam>, to_string(isa));  // two fp32 sums, one store
        EXPECT_TRUE(same_bits(rows_apart(args, isa), out)) << to_string(isa);
      }
    }
  }
}

TYPED_TEST(Embedding, GradientIsTheSumOverTokens) {
  using T = TypeParam;
  for (const int64_t columns : {1, 20, 200}) {
    const auto dout = random_values<T>(kTokens * columns, 4);
    const auto ids = random_ids(7, 5);  // rows 7 and above stay as they are
    const auto before = random_values<float>(kRows * columns, 6);
    std::vector<double> want = doubles(before);
    for (size_t t = 0; t < kTokens; ++t) {
      for (size_t c = 0; c < static_cast<size_t>(columns); ++c) {
        want[static_cast<size_t>(ids[t]) * static_cast<size_t>(columns) + c] +=
            to_float(dout[t * static_cast<size_t>(columns) + c]);
      }
    }
    for (const Isa isa : usable_rungs()) {
      std::vector<std::vector<float>> results;
      for (const int threads : {1, 2, 3}) {
        const WithThreads scope(threads);
        results.push_back(before);
        embedding_backward<T>({.dout = dout.data(),
                               .table = {results.back().data(), kRows, ids.data()},
                               .tokens = kTokens,
                               .columns = columns},
                              isa);
      }
      // Sums of about 43 values in fp32.
      expect_close(results[0], want, 2e-5, kRounding<float>, to_string(isa));
      EXPECT_TRUE(same_bits(results[0], results[1]) && same_bits(results[0], results[2])) << to_string(isa);
    }
  }
}

TEST(EmbeddingIds, OutsideTheTableAreRefused) {
  const std::vector<float> table(20);
  std::vector<float> out(20);
  for (const int32_t bad : {-1, 5}) {
    const std::vector<int32_t> ids{0, bad};
    EXPECT_THROW(
        embedding_forward<float>({.word = {table.data(), 5, ids.data()}, .out = out.data(), .tokens = 2, .columns = 4}),
        Error);
    EXPECT_THROW((embedding_backward<float>(
                     {.dout = table.data(), .table = {out.data(), 5, ids.data()}, .tokens = 2, .columns = 4})),
                 Error);
  }
}

}  // namespace
}  // namespace strake::kernels::embedding_test
