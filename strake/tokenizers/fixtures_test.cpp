// Compares with records of two small tokenizers that tools/make_tokenizer_fixtures.py trained; needs no other data.
#include <unistd.h>

#include <thread>
#include <utility>

#include "strake/core/file.h"
#include "strake/core/test_error.h"
#include "strake/tokenizers/record_check.h"

namespace strake::tokenizers::fixtures_test {
namespace {
namespace fs = std::filesystem;

class Fixture : public testing::TestWithParam<const char*> {
 protected:
  fs::path folder() const { return fs::path(STRAKE_SOURCE_DIR) / "tests/fixtures/tokenizers" / GetParam(); }
  std::shared_ptr<const Tokenizer> tokenizer_ = Tokenizer::load(folder() / "tokenizer.json");
};

TEST_P(Fixture, EncodingsAreThoseOfHuggingFace) {
  FastEncoder fast(tokenizer_);
  const int count = for_each_record(folder() / "records.jsonl", [&](const Json& record) {
    check_encodings(*tokenizer_, record);
    const std::string text = record.at("text");
    check_fast(fast, text, std::nullopt);
    check_fast(fast, text, "a second <mask> text [SEP]");
  });
  EXPECT_GT(count, 60);
}

TEST_P(Fixture, DecodedTextIsThatOfHuggingFace) {
  EXPECT_GT(
      for_each_record(folder() / "decode.jsonl", [&](const Json& record) { check_decoding(*tokenizer_, record); }), 60);
}

TEST_P(Fixture, OneTokenizerServesManyThreads) {
  std::vector<std::string> texts;
  for_each_record(folder() / "records.jsonl", [&](const Json& record) { texts.push_back(record.at("text")); });
  const auto encode_all = [&] {
    FastEncoder fast(tokenizer_);
    std::vector<int32_t> ids;
    for (const std::string& text : texts) fast.encode(text, std::nullopt, std::nullopt, ids);
    return ids;
  };
  const std::vector<int32_t> expected = encode_all();
  std::vector<std::vector<int32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = encode_all(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST_P(Fixture, TokensAndIdsAreInverse) {
  EXPECT_GT(tokenizer_->vocab_size(), 180);
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    const std::string_view token = tokenizer_->id_to_token(id);
    ASSERT_FALSE(token.empty()) << id;
    if (token == "cafe") continue;  // what the added token "Caf\u00e9" looks like after normalization
    EXPECT_EQ(tokenizer_->token_to_id(token), id) << token;
  }
  EXPECT_EQ(tokenizer_->token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer_->id_to_token(1 << 20), "");
  EXPECT_EQ(tokenizer_->id_to_token(-1), "");
}

TEST_P(Fixture, InvalidUtf8IsRefusedWithItsPlace) {
  FastEncoder fast(tokenizer_);
  const std::pair<std::string, int> kCases[] = {
      {"ab\xff", 2},           {"\xc3", 0},         {"a\xc0\x80", 1},     {"abcdefgh\xed\xa0\x80", 8},
      {"\xf4\x90\x80\x80", 0}, {"\xe0\x9f\xbf", 0}, {"a\xf0\x9f\x98", 1}, {"\x80", 0}};
  const auto expect_refusal = [](int at, const auto& encode) {
    EXPECT_TRUE(error_of([&] { encode(); }).says(ErrorKind::kData, "at byte " + std::to_string(at) + " "));
  };
  for (const auto& [text, at] : kCases) {
    std::vector<int32_t> ids{5};
    expect_refusal(at, [&, &text = text] { tokenizer_->encode(text); });
    expect_refusal(at, [&, &text = text] { fast.encode(text, std::nullopt, std::nullopt, ids); });
    EXPECT_EQ(ids, std::vector<int32_t>{5});
  }
}

// One word of a million bytes takes about a hundred times as long as one of ten thousand; a quadratic algorithm would
// take ten thousand times as long, which is minutes.
TEST_P(Fixture, HugeWordsTakeLinearTime) {
  FastEncoder fast(tokenizer_);
  for (const std::string& unit :
       {std::string("a"), std::string("lighthouse"), std::string("\u4f60"), std::string(" "), std::string("-")}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    std::vector<int32_t> ids;
    fast.encode(text, std::nullopt, std::nullopt, ids);
    EXPECT_EQ(ids, tokenizer_->encode(text).ids);
  }
}

TEST_P(Fixture, TenMegabytesOfTextAreOneText) {
  std::string text;
  while (text.size() < 10'000'000) text += "The lighthouse keeper's caf\u00e9, \u4f60\u597d 1,250! ";
  std::vector<int32_t> ids;
  FastEncoder fast(tokenizer_);
  fast.encode(text, std::nullopt, std::nullopt, ids);
  EXPECT_GT(ids.size(), 1000000U);
  std::vector<int32_t> start;
  fast.encode(text, std::nullopt, 512, start);
  EXPECT_EQ(start.size(), 512U);
  EXPECT_TRUE(std::equal(start.begin(), start.end() - 1, ids.begin()));
}

// An added token that may lie across white space, though no text has it, keeps a text whole.
TEST_P(Fixture, PartsOfALongTextGiveTheTokensOfTheWholeText) {
  std::string text;
  for_each_record(folder() / "records.jsonl", [&](const Json& record) { text += record.at("text"); });
  while (text.size() < 5 * TextCutter::kPartBytes) text += " fog\n" + text;
  Json json = read_json(folder() / "tokenizer.json", kMaxTokenizerBytes);
  const fs::path file = fs::temp_directory_path() / ("strake_parts_" + std::to_string(::getpid()) + ".json");
  for (const bool add_prefix_space : {false, true}) {
    SCOPED_TRACE(add_prefix_space);
    json["pre_tokenizer"]["add_prefix_space"] = add_prefix_space;
    write_file_atomically(file, json.dump());
    const auto in_parts = Tokenizer::load(file);
    Json with_token = json;
    with_token["added_tokens"].push_back(
        {{"id", in_parts->vocab_size()}, {"content", "no such token"}, {"normalized", true}});
    write_file_atomically(file, with_token.dump());
    const auto at_once = Tokenizer::load(file);
    fs::remove(file);
    ASSERT_LT(in_parts->cutter().part_end(text, 0), text.size());
    ASSERT_EQ(at_once->cutter().part_end(text, 0), text.size());
    const Encoding expected = at_once->encode(text), encoding = in_parts->encode(text);
    EXPECT_EQ(encoding.ids, expected.ids);
    EXPECT_EQ(encoding.offsets, expected.offsets);
    EXPECT_EQ(encoding.tokens, expected.tokens);
    EXPECT_EQ(encoding.sources, expected.sources);
    FastEncoder fast(in_parts);
    check_fast(fast, text, std::nullopt);
    std::vector<int32_t> start;
    fast.encode(text, std::nullopt, 40'000, start);
    EXPECT_EQ(start, at_once->encode(text, std::nullopt, {.truncation = Truncation{.max_length = 40'000}}).ids);
  }
}

TEST_P(Fixture, OnlyTheFirstWindowOfATextComesWhereNoOthersAreWanted) {
  for (const int64_t max_length : {3, 9, 1000}) {
    for (const Direction direction : {Direction::kRight, Direction::kLeft}) {
      EncodeOptions options{.truncation = Truncation{.max_length = max_length, .direction = direction}};
      for_each_record(folder() / "records.jsonl", [&](const Json& record) {
        const std::string text = record.at("text");
        options.overflow = true;
        const Encoding all = tokenizer_->encode(text, std::nullopt, options);
        options.overflow = false;
        const Encoding first = tokenizer_->encode(text, std::nullopt, options);
        EXPECT_EQ(first.ids, all.ids);
        EXPECT_EQ(first.offsets, all.offsets);
        EXPECT_EQ(first.was_cut, !all.overflowing.empty());
        EXPECT_TRUE(first.overflowing.empty());
      });
    }
  }
}

void check_windows(const Tokenizer& tokenizer, const std::string& second, const Truncation& truncation) {
  const std::string first = "a fog";
  std::vector<Encoding> together{tokenizer.encode(first, second, {.truncation = truncation})};
  const std::vector<Encoding> further = std::move(together.front().overflowing);
  together.insert(together.end(), further.begin(), further.end());
  std::vector<Encoding> one_by_one;
  tokenizer.encode_windows(first, second, truncation, [&](const Encoding& window) { one_by_one.push_back(window); });
  ASSERT_EQ(one_by_one.size(), together.size());
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(one_by_one[i].ids, together[i].ids);
    EXPECT_EQ(one_by_one[i].type_ids, together[i].type_ids);
    EXPECT_EQ(one_by_one[i].offsets, together[i].offsets);
    EXPECT_EQ(one_by_one[i].sources, together[i].sources);
  }
}

TEST_P(Fixture, WindowsOfASecondTextComeOneByOneAsTheyDoTogether) {
  for (const auto& [max_length, stride] : {std::pair<int64_t, int64_t>{12, 2}, {13, 0}, {1000, 5}}) {
    for (const Direction direction : {Direction::kRight, Direction::kLeft}) {
      const Truncation truncation{.max_length = max_length,
                                  .stride = stride,
                                  .strategy = TruncationStrategy::kOnlySecond,
                                  .direction = direction};
      for_each_record(folder() / "records.jsonl",
                      [&](const Json& record) { check_windows(*tokenizer_, record.at("text"), truncation); });
    }
  }
}

TEST_P(Fixture, ImpossibleTruncationIsRefused) {
  FastEncoder fast(tokenizer_);
  std::vector<int32_t> ids;
  EXPECT_THROW(fast.encode("the fog", std::nullopt, 1, ids), Error);
  EXPECT_THROW(tokenizer_->encode("the fog", std::nullopt, {.truncation = Truncation{.max_length = 1}}), Error);
  EXPECT_THROW(
      tokenizer_->encode("the fog had lifted", std::nullopt, {.truncation = Truncation{.max_length = 4, .stride = 2}}),
      Error);
}

TEST_P(Fixture, ASpaceComesBeforeTextsWhereTheFilesSaySo) {
  Json json = read_json(folder() / "tokenizer.json", kMaxTokenizerBytes);
  if (json["pre_tokenizer"]["type"] != "ByteLevel") GTEST_SKIP() << "no byte-level tokenizer";
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const fs::path file = fs::temp_directory_path() / ("strake_prefix_space_" + std::to_string(::getpid()) + ".json");
  write_file_atomically(file, json.dump());
  const auto prefixing = Tokenizer::load(file);
  fs::remove(file);
  EXPECT_NE(prefixing->encode("fog").ids, tokenizer_->encode("fog").ids);
  EXPECT_EQ(prefixing->encode("").ids, tokenizer_->encode("").ids) << "nothing comes before nothing";
  FastEncoder fast(prefixing);
  const int count = for_each_record(folder() / "records.jsonl", [&](const Json& record) {
    const std::string text = record.at("text");
    check_fast(fast, text, std::nullopt);
    check_fast(fast, text, "");
    check_fast(fast, "", text);
    EXPECT_EQ(tokenizer_->encode(text, std::nullopt, {.prefix_space = true}).ids, prefixing->encode(text).ids);
  });
  EXPECT_GT(count, 60);
  check_fast(fast, "", std::nullopt);
}

TEST_P(Fixture, TextIsCutAtTheSideThatTheFilesName) {
  const fs::path left =
      fs::temp_directory_path() / ("strake_left_tokenizer_" + std::to_string(::getpid())) / GetParam();
  fs::create_directories(left);
  Json json = read_json(folder() / "tokenizer.json", kMaxTokenizerBytes);
  json["truncation"] = {{"direction", "Left"}, {"max_length", 100}, {"strategy", "LongestFirst"}, {"stride", 0}};
  write_file_atomically(left / "tokenizer.json", json.dump());
  const auto cut_left = Tokenizer::load(left / "tokenizer.json");
  EXPECT_NE(cut_left->fingerprint(), tokenizer_->fingerprint());
  FastEncoder fast(cut_left);
  const int count = for_each_record(folder() / "records.jsonl", [&](const Json& record) {
    const std::string text = record.at("text");
    const Truncation truncation{.max_length = 9, .direction = Direction::kLeft};
    EXPECT_EQ(cut_left->encode(text, std::nullopt, {.truncation = Truncation{.max_length = 9}}).ids,
              tokenizer_->encode(text, std::nullopt, {.truncation = truncation}).ids);
    check_fast(fast, text, std::nullopt);
    check_fast(fast, text, "a second <mask> text [SEP]");
  });
  EXPECT_GT(count, 60);

  // tokenizer_config.json has the last word, as in transformers.
  write_file_atomically(left / "tokenizer_config.json", R"({"truncation_side": "right"})");
  EXPECT_EQ(Tokenizer::load(left)->fingerprint(), tokenizer_->fingerprint());
  write_file_atomically(left / "tokenizer_config.json", R"({"truncation_side": "both"})");
  EXPECT_THROW(Tokenizer::load(left), Error);
  fs::remove_all(left.parent_path());
}

TEST_P(Fixture, SavedFilesAreIdenticalAndLoadTheSame) {
  const fs::path saved =
      fs::temp_directory_path() / ("strake_saved_tokenizer_" + std::to_string(::getpid())) / GetParam();
  tokenizer_->save(saved);
  EXPECT_EQ(read_file(saved / "tokenizer.json", 1 << 20), read_file(folder() / "tokenizer.json", 1 << 20));
  const auto loaded = Tokenizer::load(saved);
  EXPECT_EQ(loaded->fingerprint(), tokenizer_->fingerprint());
  EXPECT_EQ(loaded->encode("The lighthouse <mask>").ids, tokenizer_->encode("The lighthouse <mask>").ids);
  fs::remove_all(saved.parent_path());
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Fixture, testing::Values("word_piece", "byte_level"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace strake::tokenizers::fixtures_test
