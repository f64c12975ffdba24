// Compares with records of the real BERT, RoBERTa and GPT-2 tokenizers; see shared/data/golden/README.md.
#include <cstdlib>

#include "strake/tokenizers/record_check.h"

namespace strake::tokenizers::golden_test {
namespace {
namespace fs = std::filesystem;

fs::path data_folder() {
  const char* set = std::getenv("STRAKE_TEST_DATA");
  return set ? fs::path(set) : fs::path(STRAKE_SOURCE_DIR) / "../shared/data";
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!fs::exists(records(".jsonl"))) GTEST_SKIP() << "no " << records(".jsonl") << " (set STRAKE_TEST_DATA)";
    const fs::path folder = data_folder() / "tokenizers" / GetParam();
    const fs::path json = folder / "tokenizer.json";
    tokenizer_ = Tokenizer::load(fs::exists(json) ? json : folder / "vocab.txt");
  }
  static fs::path records(const std::string& suffix) { return data_folder() / "golden" / (GetParam() + suffix); }

  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_P(Golden, IdsAreThoseOfHuggingFace) {
  FastEncoder fast(tokenizer_);
  const int count = for_each_record(records(".jsonl"), [&](const Json& record) {
    const auto text = record.at("text").get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text).ids, record.at("ids").get<std::vector<int32_t>>());
    check_fast(fast, text, std::nullopt);
  });
  EXPECT_GT(count, 700);
}

TEST_P(Golden, TokensAndOffsetsAreThoseOfHuggingFace) {
  const int count = for_each_record(records(".offsets.jsonl"), [&](const Json& record) {
    const Encoding encoding = tokenizer_->encode(record.at("text").get<std::string>());
    EXPECT_EQ(Json(encoding.tokens), record.at("tokens"));
    EXPECT_EQ(Json(encoding.ids), record.at("ids"));
    EXPECT_EQ(Json(encoding.offsets), record.at("offsets"));
  });
  EXPECT_GT(count, 200);
}

TEST_P(Golden, PairsTruncationPaddingAndWindowsAreThoseOfHuggingFace) {
  if (!fs::exists(records(".pairs.jsonl"))) GTEST_SKIP() << "no pairs for " << GetParam();
  FastEncoder fast(tokenizer_);
  const int count = for_each_record(records(".pairs.jsonl"), [&](const Json& record) {
    check_encodings(*tokenizer_, record);
    if (record.at("text_pair").is_string())
      check_fast(fast, record.at("text").get<std::string>(), record.at("text_pair").get<std::string>());
  });
  EXPECT_GT(count, 100);
}

TEST_P(Golden, DecodedTextIsThatOfHuggingFace) {
  const int count =
      for_each_record(records(".decode.jsonl"), [&](const Json& record) { check_decoding(*tokenizer_, record); });
  EXPECT_GT(count, 500);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden, testing::Values("bert-base-uncased", "roberta-base", "gpt2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace strake::tokenizers::golden_test
