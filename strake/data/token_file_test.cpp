#include "strake/data/token_files.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "strake/data/length_codec.h"
#include "strake/data/table_reader.h"
#include "strake/data/table_writer.h"
#include "strake/data/test_folder.h"

namespace strake::data::token_file_test {
namespace {
namespace fs = std::filesystem;
using testing::ElementsAre;

std::vector<int32_t> ids_of(int64_t row) {
  std::vector<int32_t> ids(static_cast<size_t>(row * 7 % 40));
  std::iota(ids.begin(), ids.end(), static_cast<int32_t>(row));
  return ids;
}

// None, one or both.
std::vector<int32_t> classes_of(int64_t row) {
  std::vector<int32_t> some;
  for (int32_t label = 0; label < 2; ++label) {
    if ((row >> label & 1) != 0) some.push_back(label);
  }
  return some;
}

class TokenFileTest : public FolderTest {
 protected:
  static TokenFileInfo classes() {
    return {.tokenizer = "bert:1234",
            .label_names = {"neg", "pos"},
            .max_length = 64,
            .source = "reviews.csv",
            .has_pairs = false,
            .label_kind = TokenLabelKind::kClass};
  }

  fs::path write_tokens(const std::string& name, const TokenFileInfo& info, int64_t first, int64_t last) const {
    TokenFileWriter writer(folder_ / name, info);
    for (int64_t row = first; row < last; ++row) {
      const std::vector<int32_t> ids = ids_of(row);
      TokenRow token_row{.ids = ids, .row = row * 10};
      if (info.has_pairs) token_row.second_begin = static_cast<int32_t>(ids.size() / 2);
      if (info.label_kind == TokenLabelKind::kClass) token_row.label = static_cast<int32_t>(row % 2);
      if (info.label_kind == TokenLabelKind::kNumber) token_row.label = static_cast<float>(row) / 4;
      const std::vector<int32_t> some = classes_of(row);
      if (info.label_kind == TokenLabelKind::kClasses) token_row.label = some;
      writer.append(token_row);
    }
    writer.finish();
    return folder_ / name;
  }
};

void expect_label(const TokenDataset& set, TokenLabelKind kind, int64_t i) {
  if (kind == TokenLabelKind::kClass) {
    ASSERT_EQ(set.class_label(i), i % 2);
  }
  if (kind == TokenLabelKind::kNumber) {
    ASSERT_EQ(set.number_label(i), static_cast<float>(i) / 4);
  }
  if (kind == TokenLabelKind::kClasses) {
    ASSERT_TRUE(std::ranges::equal(set.classes(i), classes_of(i)));
  }
}

TEST_F(TokenFileTest, SequencesLabelsAndRowsComeBack) {
  for (const TokenLabelKind kind :
       {TokenLabelKind::kNone, TokenLabelKind::kClass, TokenLabelKind::kNumber, TokenLabelKind::kClasses}) {
    for (const bool pairs : {false, true}) {
      TokenFileInfo info = classes();
      info.label_kind = kind;
      info.has_pairs = pairs;
      const TokenFiles loaded({write_tokens("t.parquet", info, 0, 10000)});
      const TokenDataset set = loaded.load();
      ASSERT_EQ(set.size(), 10000);
      ASSERT_EQ(set.label_kind(), kind);
      EXPECT_EQ(set.has_pairs(), pairs);
      int64_t total = 0;
      int32_t largest = -1;
      for (int64_t i = 0; i < set.size(); ++i) {
        const std::vector<int32_t> ids = ids_of(i);
        ASSERT_TRUE(std::ranges::equal(set.tokens(i), ids)) << i;
        ASSERT_EQ(set.second_begin(i), static_cast<int32_t>(pairs ? ids.size() / 2 : ids.size()));
        ASSERT_NO_FATAL_FAILURE(expect_label(set, kind, i));
        total += static_cast<int64_t>(ids.size());
        if (!ids.empty()) largest = std::max(largest, ids.back());
      }
      EXPECT_EQ(set.total_tokens(), total);
      EXPECT_EQ(set.max_token_id(), largest);
    }
  }
}

TEST_F(TokenFileTest, TheFingerprintOfADatasetIsThatOfItsContent) {
  const std::vector<int32_t> ids{7, 8, 9};
  const auto fingerprint = [](std::initializer_list<TokenRow> rows) {
    TokenDatasetBuilder builder("test");
    for (const TokenRow& row : rows) builder.append(row);
    return builder.build().fingerprint();
  };
  const auto all = std::span(ids);
  const TokenRow first{.ids = all.first(2), .label = 0, .row = 0};
  const TokenRow second{.ids = all.last(1), .label = 1, .row = 1};
  const uint32_t expected = fingerprint({first, second});
  EXPECT_EQ(fingerprint({first, second}), expected);
  TokenRow moved = first;
  moved.ids = all.last(2);  // as many other tokens
  TokenRow relabelled = second;
  relabelled.label = 0;
  TokenRow paired = first;
  paired.second_begin = 1;
  const TokenRow shorter{.ids = all.first(1), .label = 0, .row = 0};
  const TokenRow longer{.ids = all.last(2), .label = 1, .row = 1};
  const std::set<uint32_t> different{expected,
                                     fingerprint({second, first}),
                                     fingerprint({moved, second}),
                                     fingerprint({first, relabelled}),
                                     fingerprint({paired, second}),
                                     fingerprint({shorter, longer})};
  EXPECT_EQ(different.size(), 6U);
  const TokenFileInfo info = classes();
  const auto loaded = TokenFiles({write_tokens("t.parquet", info, 0, 100)}).load().fingerprint();
  EXPECT_EQ(TokenFiles({write_tokens("u.parquet", info, 0, 100)}).load().fingerprint(), loaded);
  EXPECT_NE(TokenFiles({write_tokens("v.parquet", info, 1, 101)}).load().fingerprint(), loaded);
}

TEST_F(TokenFileTest, TheFooterAloneGivesInfoAndLengths) {
  const auto file = write_tokens("t.parquet", classes(), 0, 5000);
  EXPECT_TRUE(is_token_file(file));
  const TokenFileReader reader(file);
  EXPECT_EQ(reader.info().tokenizer, "bert:1234");
  EXPECT_THAT(reader.info().label_names, ElementsAre("neg", "pos"));
  EXPECT_EQ(reader.info().max_length, 64);
  EXPECT_EQ(reader.info().source, "reviews.csv");
  ASSERT_EQ(reader.lengths().size(), 5000U);
  for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(reader.lengths()[static_cast<size_t>(i)], i * 7 % 40);
}

TEST_F(TokenFileTest, SeveralFilesBecomeOneDatasetIfTheyMatch) {
  write_tokens("part-0.parquet", classes(), 0, 30);
  write_tokens("part-1.parquet", classes(), 30, 50);
  const TokenFiles loaded({folder_});
  EXPECT_EQ(loaded.size(), 50);
  EXPECT_EQ(loaded.load().size(), 50);
  int64_t seen = 0;
  loaded.for_each([&](const TokenRow& row, int64_t max_length) {
    EXPECT_EQ(row.row, 10 * seen);
    EXPECT_EQ(max_length, 64);
    return ++seen < 40;
  });
  EXPECT_EQ(seen, 40);
  TokenFileInfo other = classes();
  other.tokenizer = "gpt2:99";
  write_tokens("part-2.parquet", other, 0, 3);
  EXPECT_TRUE(error_of([&] { TokenFiles({folder_}); }).says(ErrorKind::kData, "different tokenizers or labels"));
}

TEST_F(TokenFileTest, FilesWithoutSequencesLoad) {
  EXPECT_EQ(TokenFiles({write_tokens("none.parquet", classes(), 0, 0)}).load().size(), 0);
}

TEST_F(TokenFileTest, TheColumnsAreOrdinaryParquet) {
  TableReader reader({.paths = {write_tokens("t.parquet", classes(), 0, 3)}});
  EXPECT_THAT(reader.column_names(), ElementsAre("input_ids", "label", "row"));
  EXPECT_EQ(reader.next()->labels("row").text(2), "20");
}

TEST_F(TokenFileTest, WrongRowsAreRefusedByTheWriter) {
  const std::vector<int32_t> ids = {1, 2, 3};
  const std::vector<int32_t> negative = {1, -2};
  const std::vector<int32_t> many(65, 1);
  TokenFileWriter writer(folder_ / "t.parquet", classes());
  const auto problem = [&](const TokenRow& row) { return error_of([&] { writer.append(row); }); };
  EXPECT_TRUE(
      problem({.ids = negative, .label = 1, .row = 4}).says(ErrorKind::kData, "row 4 has the negative token id -2"));
  EXPECT_TRUE(problem({.ids = many, .label = 1}).says(ErrorKind::kData, "65 tokens, max_length is 64"));
  EXPECT_TRUE(problem({.ids = ids, .label = 2}).says(ErrorKind::kData, "class 2 of 2"));
  EXPECT_TRUE(problem({.ids = ids, .label = -1}).says(ErrorKind::kData, "negative class"));
  EXPECT_TRUE(problem({.ids = ids, .label = 1.0F}).says(ErrorKind::kData, "a number where rows before"));
  EXPECT_TRUE(problem({.ids = ids, .second_begin = 4, .label = 1}).says(ErrorKind::kData, "token 4 of 3"));
  EXPECT_TRUE(problem({.ids = ids, .second_begin = 1, .label = 1}).says(ErrorKind::kData, "without pairs"));
  EXPECT_TRUE(problem({.ids = ids, .label = 1, .row = -1}).says(ErrorKind::kData, "negative"));
}

TEST_F(TokenFileTest, ListsOfClassesAscendAndHaveNames) {
  TokenFileInfo info = classes();
  info.label_kind = TokenLabelKind::kClasses;
  TokenFileWriter writer(folder_ / "t.parquet", info);
  const auto problem = [&](const std::vector<int32_t>& labels) {
    return error_of([&] { writer.append({.label = labels, .row = 4}); });
  };
  EXPECT_TRUE(problem({1, 0}).says(ErrorKind::kData, "classes of row 4 do not ascend: 1"));
  EXPECT_TRUE(problem({1, 1}).says(ErrorKind::kData, "do not ascend"));
  EXPECT_TRUE(problem({-1, 1}).says(ErrorKind::kData, "negative class -1"));
  EXPECT_TRUE(problem({0, 2}).says(ErrorKind::kData, "class 2 of 2"));
  EXPECT_TRUE(error_of([&] { writer.append({.label = 1}); }).says(ErrorKind::kData, "a class where rows before"));
}

TEST_F(TokenFileTest, ClassesOfADatasetAreRenumberedAndCounted) {
  TokenFileInfo info = classes();
  info.label_kind = TokenLabelKind::kClasses;
  TokenDataset set = TokenFiles({write_tokens("t.parquet", info, 0, 4)}).load();
  const std::vector<int32_t> swapped{5, 3};
  set.renumber_classes(swapped);
  EXPECT_THAT(set.classes(0), testing::IsEmpty());
  EXPECT_THAT(set.classes(1), ElementsAre(5));
  EXPECT_THAT(set.classes(3), ElementsAre(3, 5));
  EXPECT_TRUE(error_of([&] { set.set_num_classes(5); }).says(ErrorKind::kData, "row 1 has class 5 of 5"));
  set.set_num_classes(6);
  EXPECT_EQ(set.num_classes(), 6);
}

TEST_F(TokenFileTest, OtherAndForgedFilesAreRefusedByTheReader) {
  const auto forge = [&](const std::map<std::string, std::string>& metadata, const std::vector<ExtraColumn>& extra) {
    TableReader empty({.paths = {write("t.csv", "x\n1\n")}});
    TableWriter writer(folder_ / "forged.parquet", {.metadata = metadata});
    writer.append(empty.next().value(), extra);
    writer.finish();
    return error_of([&] { TokenFiles({folder_ / "forged.parquet"}).load(); });
  };
  const std::vector<ExtraColumn> columns = {{"input_ids", std::vector<std::vector<int32_t>>{{1, 2}}},
                                            {"row", std::vector<int64_t>{0}}};
  std::map<std::string, std::string> metadata = {{"strake.format_version", "1"},
                                                 {"strake.tokenizer", "t"},
                                                 {"strake.label_names", "[]"},
                                                 {"strake.max_length", "8"},
                                                 {"strake.source", "s"}};
  EXPECT_TRUE(forge({}, columns).says(ErrorKind::kData, "is not a token file"));
  EXPECT_EQ(forge(metadata, columns).text, "no error");
  const std::vector<ExtraColumn> text_ids = {{"input_ids", std::vector<std::string>{"1"}}, columns[1]};
  EXPECT_TRUE(
      forge(metadata, text_ids).says(ErrorKind::kData, "column 'input_ids' of a token file has the type string"));
  EXPECT_TRUE(forge(metadata, {columns[0]}).says(ErrorKind::kData, "no column 'row'"));
  const std::vector<ExtraColumn> negative = {{"input_ids", std::vector<std::vector<int32_t>>{{-5}}}, columns[1]};
  EXPECT_TRUE(forge(metadata, negative).says(ErrorKind::kData, "negative token id -5"));
  metadata["strake.lengths"] = encode_lengths(std::vector<int32_t>{3});
  EXPECT_TRUE(forge(metadata, columns).says(ErrorKind::kData, "its footer says otherwise"));
  metadata["strake.lengths"] = encode_lengths(std::vector<int32_t>{2, 2});
  EXPECT_TRUE(forge(metadata, columns).kind == ErrorKind::kData);
  metadata["strake.lengths"] = "!!";
  EXPECT_TRUE(forge(metadata, columns).kind == ErrorKind::kData);
  metadata.erase("strake.lengths");
  metadata["strake.max_length"] = "1";
  EXPECT_TRUE(forge(metadata, columns).says(ErrorKind::kData, "2 tokens, max_length is 1"));
  metadata["strake.format_version"] = "2";
  EXPECT_TRUE(forge(metadata, columns).says(ErrorKind::kData, "format 2, this program reads format 1"));
}

TEST_F(TokenFileTest, LengthsAreSmallAndExact) {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 100000; ++i) lengths.push_back(20 + i * 31 % 17);
  lengths.insert(lengths.end(), {0, 127, 128, 1 << 20, std::numeric_limits<int32_t>::max()});
  const std::string text = encode_lengths(lengths);
  EXPECT_EQ(decode_lengths(text, static_cast<int64_t>(lengths.size()), "t"), lengths);
  EXPECT_LT(text.size(), lengths.size());
  EXPECT_TRUE(decode_lengths(encode_lengths({}), 0, "t").empty());
  EXPECT_TRUE(error_of([&] { decode_lengths(text, 5, "t"); }).kind == ErrorKind::kData);
  EXPECT_TRUE(error_of([&] {
                decode_lengths(encode_lengths(std::vector<int32_t>{0, 0, 0, 0, 0}), 2, "t");
              }).says(ErrorKind::kData, "more than 2 sequence lengths"));
  EXPECT_TRUE(error_of([&] { decode_lengths(text, 200000, "t"); }).says(ErrorKind::kData, "do not belong to 200000"));
  EXPECT_TRUE(error_of([&] { decode_lengths(text, int64_t{1} << 40, "t"); }).kind == ErrorKind::kData);
}

TEST_F(TokenFileTest, BuilderFillsInEarlierRowsWhenTheFirstPairArrives) {
  const std::vector<int32_t> ids = {4, 5, 6};
  TokenDatasetBuilder builder("test");
  builder.append({.ids = ids, .row = 0});
  builder.append({.ids = ids, .second_begin = 1, .row = 1});
  builder.append({.row = 2});
  const TokenDataset set = builder.build();
  EXPECT_EQ(set.second_begin(0), 3);
  EXPECT_EQ(set.second_begin(1), 1);
  EXPECT_EQ(set.second_begin(2), 0);
  EXPECT_EQ(set.max_token_id(), 6);
  EXPECT_EQ(builder.build().size(), 0);
}

}  // namespace
}  // namespace strake::data::token_file_test
