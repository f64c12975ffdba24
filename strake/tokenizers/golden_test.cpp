// Compares with records that pip tokenizers made; see shared/data/golden/README.md.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "strake/core/json.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::tokenizers {
namespace {
namespace fs = std::filesystem;

fs::path data_folder() {
  const char* set = std::getenv("STRAKE_TEST_DATA");
  return set ? fs::path(set) : fs::path(STRAKE_SOURCE_DIR) / "../shared/data";
}

std::shared_ptr<const Tokenizer> load(const std::string& name) {
  const fs::path folder = data_folder() / "tokenizers" / name;
  const fs::path json = folder / "tokenizer.json";
  return Tokenizer::load(fs::exists(json) ? json : folder / "vocab.txt");
}

Direction to_direction(const Json& json) {
  return json.value("direction", "right") == "left" ? Direction::kLeft : Direction::kRight;
}

EncodeOptions to_options(const Json& record) {
  EncodeOptions options;
  if (const Json& t = record.at("truncation"); !t.is_null()) {
    const std::string strategy = t.at("strategy");
    options.truncation = Truncation{.max_length = t.at("max_length"),
                                    .stride = t.at("stride"),
                                    .strategy = strategy == "only_first"    ? TruncationStrategy::kOnlyFirst
                                                : strategy == "only_second" ? TruncationStrategy::kOnlySecond
                                                                            : TruncationStrategy::kLongestFirst,
                                    .direction = to_direction(t)};
  }
  if (const Json& p = record.at("padding"); !p.is_null()) {
    options.padding = Padding{.direction = to_direction(p),
                              .pad_id = p.at("pad_id"),
                              .pad_type_id = p.at("pad_type_id"),
                              .pad_token = p.at("pad_token")};
    if (!p.at("length").is_null()) options.padding->length = p.at("length").get<int64_t>();
    if (!p.at("pad_to_multiple_of").is_null()) options.padding->pad_to_multiple_of = p.at("pad_to_multiple_of").get<int64_t>();
  }
  return options;
}

Json to_json(const Encoding& encoding) {
  return {{"ids", encoding.ids},
          {"type_ids", encoding.type_ids},
          {"attention_mask", encoding.attention_mask},
          {"special_tokens_mask", encoding.special_tokens_mask},
          {"offsets", encoding.offsets}};
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!fs::exists(data_folder() / "golden" / (std::string(GetParam()) + ".jsonl")))
      GTEST_SKIP() << "no golden records under " << data_folder() << " (set STRAKE_TEST_DATA)";
  }

  // Calls check(tokenizer, record) for every record of golden/NAME`suffix`; false if there is no such file.
  bool for_each(const std::string& suffix, const std::function<void(const Tokenizer&, const Json&)>& check) {
    std::ifstream file(data_folder() / "golden" / (GetParam() + suffix));
    if (!file) return false;
    const auto tokenizer = load(GetParam());
    int count = 0;
    for (std::string line; std::getline(file, line) && !HasFailure(); ++count) {
      SCOPED_TRACE(line.substr(0, 300));
      check(*tokenizer, Json::parse(line));
    }
    EXPECT_GT(count, 100);
    return true;
  }
};

TEST_P(Golden, IdsAreThoseOfHuggingFace) {
  EXPECT_TRUE(for_each(".jsonl", [](const Tokenizer& tokenizer, const Json& record) {
    EXPECT_EQ(tokenizer.encode(record.at("text").get<std::string>()).ids, record.at("ids").get<std::vector<int32_t>>());
  }));
}

TEST_P(Golden, TokensAndOffsetsAreThoseOfHuggingFace) {
  EXPECT_TRUE(for_each(".offsets.jsonl", [](const Tokenizer& tokenizer, const Json& record) {
    const Encoding encoding = tokenizer.encode(record.at("text").get<std::string>());
    EXPECT_EQ(Json(encoding.tokens), record.at("tokens"));
    EXPECT_EQ(Json(encoding.ids), record.at("ids"));
    EXPECT_EQ(Json(encoding.offsets), record.at("offsets"));
  }));
}

TEST_P(Golden, PairsTruncationPaddingAndWindowsAreThoseOfHuggingFace) {
  const bool found = for_each(".pairs.jsonl", [](const Tokenizer& tokenizer, const Json& record) {
    const std::string text = record.at("text");
    std::optional<std::string> pair;
    if (!record.at("text_pair").is_null()) pair = record.at("text_pair").get<std::string>();
    Json actual;
    try {
      const Encoding encoding = tokenizer.encode(text, pair, to_options(record));
      actual.push_back(to_json(encoding));
      for (const Encoding& window : encoding.overflowing) actual.push_back(to_json(window));
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), record.value("error", "an error was not expected"));
      return;
    }
    EXPECT_EQ(actual, record.value("encodings", Json("an error was expected")));
  });
  if (!found) GTEST_SKIP() << "no pairs for " << GetParam();
}

TEST_P(Golden, DecodedTextIsThatOfHuggingFace) {
  EXPECT_TRUE(for_each(".decode.jsonl", [](const Tokenizer& tokenizer, const Json& record) {
    const auto ids = record.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.decode(ids, {.skip_special_tokens = record.at("skip_special_tokens").get<bool>()}),
              record.at("text").get<std::string>());
  }));
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden, testing::Values("bert-base-uncased", "roberta-base", "gpt2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace strake::tokenizers
