#include "strake/data/token_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "strake/core/test_error.h"
#include "strake/data/collate.h"

namespace strake::data::token_dataset_test {
namespace {

constexpr int64_t kRows = 12;

// Pairs and the largest ids are in the last rows. `label` is what a row has.
template <typename Label>
TokenDataset rows_before(int64_t end, Label& label) {
  TokenDatasetBuilder builder("test");
  for (int64_t row = 0; row < end; ++row) {
    const auto number = static_cast<int32_t>(row);
    const std::vector<int32_t> ids(static_cast<size_t>(row % 5), 7 * number);
    const std::vector<int32_t> classes(static_cast<size_t>(row % 2), number % 3);
    TokenRow one{.ids = ids, .row = 2 * row};
    if (row > 7 && !ids.empty()) one.second_begin = 0;
    label(one, number, classes);
    builder.append(one);
  }
  return builder.build();
}

template <typename Label>
void expect_first_as_if_alone(Label label) {
  for (const int64_t count : {1, 4, 9, 11, 12, 13}) {
    TokenDataset first = rows_before(kRows, label);
    first.keep_first(count);
    const TokenDataset alone = rows_before(std::min(count, kRows), label);
    EXPECT_EQ(first.size(), alone.size());
    EXPECT_EQ(first.fingerprint(), alone.fingerprint()) << "the first " << count;
    EXPECT_EQ(first.max_token_id(), alone.max_token_id()) << "the first " << count;
    EXPECT_EQ(first.has_pairs(), alone.has_pairs()) << "the first " << count;
  }
}

TEST(TokenDataset, KeepsItsFirstSequencesAsIfThereHadBeenNoOthers) {
  using Classes = std::vector<int32_t>;
  expect_first_as_if_alone([](TokenRow&, int32_t, const Classes&) {});
  expect_first_as_if_alone([](TokenRow& row, int32_t number, const Classes&) { row.label = number; });
  expect_first_as_if_alone(
      [](TokenRow& row, int32_t number, const Classes&) { row.label = static_cast<float>(number); });
  expect_first_as_if_alone(
      [](TokenRow& row, int32_t, const Classes& classes) { row.label = std::span<const int32_t>(classes); });
  expect_first_as_if_alone([of_tokens = Classes()](TokenRow& row, int32_t number, const Classes&) mutable {
    of_tokens.assign(row.ids.size(), number % 3 - 1);
    row.label = TokenClasses{of_tokens};
  });
}

TEST(TokenDataset, CountsTokensThatHaveAClass) {
  const std::vector<int32_t> ids{5, 6, 7, 8};
  const std::vector<int32_t> classes{kNoClass, 0, 2, kNoClass};
  TokenDatasetBuilder builder("test");
  for (int64_t row = 0; row < 2; ++row) builder.append({.ids = ids, .label = TokenClasses{classes}, .row = row});
  const TokenDataset dataset = builder.build();
  EXPECT_EQ(dataset.num_labelled(1), 2);
  EXPECT_EQ(dataset.token_classes(1)[2], 2);
  EXPECT_EQ(labels_of(dataset, std::vector<int64_t>{1}).size(0), 4);
  EXPECT_EQ(labels_of(dataset, std::vector<int64_t>{1, 0}).sum().item<int64_t>(), 2 * (2 + 2 * tensors::kIgnoredLabel));
}

TEST(TokenDataset, RefusesClassesThatAreNotThoseOfItsTokens) {
  const std::vector<int32_t> ids{5, 6};
  for (const auto& classes : {std::vector<int32_t>{0}, {0, 1, 2}, {0, -2}}) {
    TokenDatasetBuilder builder("here");
    EXPECT_EQ(error_of([&] { builder.append({.ids = ids, .label = TokenClasses{classes}, .row = 3}); }).text,
              "here: row 3 does not have one class for each of its 2 tokens");
  }
}

TEST(TokenDataset, GivesSpansByTheirPlacesInTheBatch) {
  const std::vector<int32_t> ids{5, 6, 7, 8};
  TokenDatasetBuilder builder("here");
  builder.append({.ids = ids, .label = TokenSpan{1, 3}, .row = 0});
  builder.append({.ids = std::span(ids).first(1), .label = TokenSpan{0, 0}, .row = 1});
  for (const TokenSpan& span : {TokenSpan{-1, 0}, {2, 1}, {1, 4}}) {
    EXPECT_EQ(error_of([&] { builder.append({.ids = ids, .label = span, .row = 3}); }).text,
              fmt::format("here: row 3 has a span of tokens {} to {} of 4", span.first, span.last));
  }
  TokenDataset dataset = builder.build();
  EXPECT_EQ(dataset.span(0), (TokenSpan{1, 3}));
  const at::Tensor labels = labels_of(dataset, std::vector<int64_t>{1, 0, 1});
  const std::vector<int64_t> places(labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + 6);
  EXPECT_EQ(places, (std::vector<int64_t>{0, 0, 2, 4, 5, 5}));
  builder.append({.ids = ids, .label = TokenSpan{1, 3}, .row = 0});
  dataset.keep_first(1);
  EXPECT_EQ(dataset.fingerprint(), builder.build().fingerprint());
  builder.append({.ids = ids, .label = TokenSpan{1, 2}, .row = 0});
  EXPECT_NE(dataset.fingerprint(), builder.build().fingerprint());
}

}  // namespace
}  // namespace strake::data::token_dataset_test
