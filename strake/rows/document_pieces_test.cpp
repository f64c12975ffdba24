#include "strake/rows/document_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "strake/core/test_error.h"

namespace strake::rows::document_pieces_test {
namespace {

using testing::ElementsAre;

std::vector<int32_t> document(int32_t first, size_t length) {
  std::vector<int32_t> ids(length);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

TEST(DocumentPieces, AreDocumentsCutWhereTheyAreTooLong) {
  DocumentPieces pieces("here", {.block_size = 4});
  for (const auto& ids : {document(10, 3), document(20, 4), document(30, 10)}) pieces.append(ids);
  const data::TokenDataset dataset = pieces.build();
  ASSERT_EQ(dataset.size(), 5);
  EXPECT_THAT(dataset.tokens(0), ElementsAre(10, 11, 12));
  EXPECT_THAT(dataset.tokens(1), ElementsAre(20, 21, 22, 23));
  EXPECT_THAT(dataset.tokens(2), ElementsAre(30, 31, 32, 33));
  EXPECT_THAT(dataset.tokens(4), ElementsAre(38, 39));
  EXPECT_EQ(pieces.num_documents(), 3);
  EXPECT_EQ(pieces.num_short_documents() + pieces.num_short_ends(), 0);
}

TEST(DocumentPieces, CountWhatPredictsNothing) {
  DocumentPieces pieces("here", {.block_size = 4});
  for (const size_t length : {0, 1, 2, 5, 9}) pieces.append(document(1, length));
  const data::TokenDataset dataset = pieces.build();
  EXPECT_EQ(pieces.num_documents(), 5);
  EXPECT_EQ(pieces.num_short_documents(), 2);
  EXPECT_EQ(pieces.num_short_ends(), 2);
  EXPECT_EQ(dataset.size(), 4);
  EXPECT_EQ(dataset.total_tokens(), 2 + 4 + 8);
}

TEST(DocumentPieces, HaveTheEndsOfAWholeText) {
  DocumentPieces pieces("here", {.block_size = 5, .ends = PieceEnds{.first = 1, .last = 2}});
  for (const auto& ids : {std::vector<int32_t>{1, 10, 11, 2}, {1, 2}, {1, 20, 21, 22, 2}, {1, 30, 31, 32, 33, 2}}) {
    pieces.append(ids);
  }
  const data::TokenDataset dataset = pieces.build();
  ASSERT_EQ(dataset.size(), 4);
  EXPECT_THAT(dataset.tokens(0), ElementsAre(1, 10, 11, 2));
  EXPECT_THAT(dataset.tokens(1), ElementsAre(1, 20, 21, 22, 2));
  EXPECT_THAT(dataset.tokens(2), ElementsAre(1, 30, 31, 32, 2));
  EXPECT_THAT(dataset.tokens(3), ElementsAre(1, 33, 2));
  EXPECT_EQ(pieces.num_short_documents(), 1);
  EXPECT_EQ(pieces.num_cut_documents(), 1);
}

TEST(DocumentPieces, WithoutTheEndsThatTheyShouldHaveAreRefused) {
  for (const auto& ids : {std::vector<int32_t>{}, {1}, {1, 10, 11}, {10, 2}}) {
    DocumentPieces pieces("here", {.block_size = 5, .ends = PieceEnds{.first = 1, .last = 2}});
    EXPECT_EQ(error_of([&] { pieces.append(ids); }).text,
              "here: document 1 is not between the tokens 1 and 2 that the tokenizer puts around a text");
  }
}

}  // namespace
}  // namespace strake::rows::document_pieces_test
