#include "strake/tokenizers/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strake/core/json.h"
#include "strake/core/test_error.h"
#include "strake/tokenizers/fast_encoder.h"
#include "strake/tokenizers/tokenizer.h"
#include "strake/tokenizers/tokenizer_json.h"

namespace strake::tokenizers::added_tokens_test {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Tokenizer> tokenizer_of(const Json& json) {
  return std::make_shared<const Tokenizer>(spec_from_json(json, "tokenizer.json"), std::map<std::string, std::string>(),
                                           std::nullopt);
}

std::string error_of(const Json& json) {
  return strake::error_of([&] { tokenizer_of(json); }).text_of(ErrorKind::kConfig);
}

// The tokens of tokenizers 0.23: ids, and where they begin and end.
void expect_tokens(const Json& json, const std::string& text, const std::vector<int32_t>& ids,
                   const std::vector<std::pair<int32_t, int32_t>>& offsets) {
  const auto tokenizer = tokenizer_of(json);
  const Encoding encoding = tokenizer->encode(text);
  EXPECT_EQ(encoding.ids, ids);
  EXPECT_EQ(encoding.offsets, offsets);
  std::vector<int32_t> fast;
  FastEncoder(tokenizer).encode(text, std::nullopt, std::nullopt, fast);
  EXPECT_EQ(fast, ids);
}

Json with_added(const Json& vocabulary, const Json& added) {
  return {{"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}},
          {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
          {"added_tokens", added}};
}

TEST(AddedTokens, MayOverlapInWhiteSpace) {
  const Json vocabulary{{"[UNK]", 0}, {"a", 1}, {"b", 2}, {"c", 3}};
  for (const bool normalized : {true, false}) {
    Json added = Json::array({{{"id", 4}, {"content", "<m>"}, {"rstrip", true}, {"normalized", normalized}},
                              {{"id", 5}, {"content", "\n"}, {"normalized", normalized}}});
    expect_tokens(with_added(vocabulary, added), "a<m>\n\n\nb c", {1, 4, 5, 5, 5, 2, 3},
                  {{0, 1}, {1, 7}, {4, 5}, {5, 6}, {6, 7}, {7, 8}, {9, 10}});
    added[1]["lstrip"] = true;
    expect_tokens(with_added(vocabulary, added), "a<m>\nb", {1, 4, 2}, {{0, 1}, {1, 5}, {5, 6}});
    const auto tokenizer = tokenizer_of(with_added(vocabulary, added));
    EXPECT_TRUE(strake::error_of([&] {
                  tokenizer->encode("a<m>\n\n\nb");
                }).says(ErrorKind::kData, "lies in white space that another one takes"));
  }
}

TEST(AddedTokens, GetIdsFromTheNumberOfTokensOn) {
  const Json added = Json::array(
      {{{"id", 7}, {"content", "b"}, {"normalized", false}}, {{"id", 3}, {"content", "<new>"}, {"normalized", false}}});
  expect_tokens(with_added({{"[UNK]", 0}, {"a", 1}, {"b", 7}}, added), "a <new> b", {1, 3, 7},
                {{0, 1}, {2, 7}, {8, 9}});
  EXPECT_THAT(error_of(with_added({{"[UNK]", 0}, {"a", 1}, {"b", 3}}, added)),
              HasSubstr("'<new>' would get id 3, which 'b' has"));
}

TEST(AddedTokens, OfManyBytesAreRefused) {
  const Json added = Json::array({{{"id", 1}, {"content", std::string(513, 'a')}}});
  EXPECT_THAT(error_of(with_added({{"[UNK]", 0}}, added)), HasSubstr("has 513 bytes; at most 512 are looked for"));
}

TEST(PostProcessor, TrimsAsOftenAsItsMembersSay) {
  const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  const Json around{{"type", "BertProcessing"}, {"sep", {"</s>", 1}}, {"cls", {"<s>", 0}}};
  Json json{{"model",
             {{"type", "BPE"},
              {"vocab", {{"<s>", 0}, {"</s>", 1}, {"a", 2}, {"\u0120a", 3}, {"\u0120", 4}, {"b", 5}}},
              {"merges", {"\u0120 a"}}}},
            {"pre_tokenizer", byte_level}};
  json["post_processor"] = {{"type", "Sequence"}, {"processors", {byte_level, around}}};
  expect_tokens(json, "b a", {0, 5, 3, 1}, {{0, 0}, {0, 1}, {2, 3}, {0, 0}});
  json["post_processor"]["processors"] = {byte_level, byte_level};
  expect_tokens(json, "b a", {5, 3}, {{0, 1}, {3, 3}});
}

}  // namespace
}  // namespace strake::tokenizers::added_tokens_test
