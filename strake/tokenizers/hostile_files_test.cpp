#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "strake/core/file.h"
#include "strake/core/json.h"
#include "strake/core/test_error.h"
#include "strake/tokenizers/tokenizer.h"
#include "strake/tokenizers/tokenizer_json.h"

namespace strake::tokenizers::hostile_files_test {
namespace {
namespace fs = std::filesystem;

const Json kWordPiece = Json::parse(R"({"version": "1.0", "added_tokens": [],
  "normalizer": {"type": "BertNormalizer"},
  "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece"},
  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {"[UNK]": 0, "a": 1, "##b": 2}}})");
const Json kBytePair = Json::parse(R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");

std::string error_of(const std::string& text) {
  try {
    Tokenizer(read_tokenizer_json(text, "tokenizer.json"), {}, std::nullopt);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_EQ(std::string(error.what()).find("tokenizer.json"), 0U) << error.what();
    return error.what();
  }
  return "accepted";
}

// The error for `base` with `value` at `pointer`.
std::string error_with(Json base, const std::string& pointer, const Json& value) {
  base[Json::json_pointer(pointer)] = value;
  return error_of(base.dump());
}

#define EXPECT_IN(part, text) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(HostileTokenizerJson, TheUnchangedFilesAreAccepted) {
  EXPECT_EQ(error_of(kWordPiece.dump()), "accepted");
  EXPECT_EQ(error_of(kBytePair.dump()), "accepted");
}

TEST(HostileTokenizerJson, EveryTruncationOfTheFileIsAnError) {
  for (const Json& base : {kWordPiece, kBytePair}) {
    const std::string text = base.dump();
    for (size_t size = 0; size < text.size(); ++size) EXPECT_IN("not valid JSON", error_of(text.substr(0, size)));
  }
}

TEST(HostileTokenizerJson, EveryValueMayHaveTheWrongType) {
  for (const Json& base : {kWordPiece, kBytePair}) {
    const Json flat = base.flatten();
    for (const auto& [pointer, unused] : flat.items())
      for (const Json& wrong :
           {Json(nullptr), Json(-1), Json(1.5), Json("x"), Json::array({1}), Json::object({{"y", 2}})}) {
        Json changed = base;
        changed[Json::json_pointer(pointer)] = wrong;
        error_of(changed.dump());  // any outcome but a crash or another exception
      }
  }
}

TEST(HostileTokenizerJson, DeepNestingIsRefused) {
  EXPECT_IN("deeper than 64", error_of("{\"model\":" + std::string(100000, '[')));
  Json nested = {{"type", "NFD"}};
  for (int i = 0; i < 60; ++i) nested = {{"type", "Sequence"}, {"normalizers", Json::array({nested})}};
  EXPECT_IN("deeper than 64", error_with(kWordPiece, "/normalizer", nested));
}

TEST(HostileTokenizerJson, BadIdsAreRefused) {
  EXPECT_IN("id -1 of token 'a' is outside", error_with(kWordPiece, "/model/vocab/a", -1));
  EXPECT_IN("id 2147483648 of token 'a' is outside", error_with(kWordPiece, "/model/vocab/a", 2147483648));
  EXPECT_IN("of token 'a' is outside", error_with(kWordPiece, "/model/vocab/a", UINT64_MAX));
  EXPECT_IN("is not an integer", error_with(kWordPiece, "/model/vocab/a", 1.5));
  EXPECT_IN("both have id 2", error_with(kWordPiece, "/model/vocab/a", 2));
  EXPECT_IN("occurs twice", error_of(R"({"model": {"vocab": {"a": 1, "a": 2}}})"));
  EXPECT_IN("unknown token '[UNK]' is not in the vocabulary", error_with(kWordPiece, "/model/vocab", Json::object()));
  EXPECT_IN("not an id", error_with(kWordPiece, "/added_tokens", {{{"id", -4}, {"content", "x"}}}));
  EXPECT_IN("not an id", error_with(kWordPiece, "/post_processor",
                                    {{"type", "BertProcessing"}, {"sep", {"x", 4294967296}}, {"cls", {"y", 1}}}));
}

TEST(HostileTokenizerJson, MergesMustNameKnownTokens) {
  EXPECT_IN("needs token 'c', which the vocabulary lacks", error_with(kBytePair, "/model/merges", {"a c"}));
  EXPECT_IN("needs token 'ba', which the vocabulary lacks", error_with(kBytePair, "/model/merges", {"b a"}));
  for (const Json& bad : {Json("ab"), Json("a b c"), Json(7), Json::array({"a"}), Json::array({"a", 1}), Json("")})
    EXPECT_IN("not two tokens", error_with(kBytePair, "/model/merges", Json::array({bad})));
}

TEST(HostileTokenizerJson, WhatIsNotThereYetIsRefusedByName) {
  EXPECT_IN("model type 'Unigram' is not supported yet; supported: WordPiece, BPE (byte level)",
            error_with(kWordPiece, "/model/type", "Unigram"));
  EXPECT_IN("model type 'Unigram'", error_of(R"({"model": {"unk_id": 0, "vocab": [["a", -1.5]]}})"));
  EXPECT_IN("type 'Precompiled' is not supported yet; supported: Sequence, BertNormalizer",
            error_with(kWordPiece, "/normalizer/type", "Precompiled"));
  EXPECT_IN("type 'Metaspace' is not supported yet", error_with(kBytePair, "/pre_tokenizer/type", "Metaspace"));
  EXPECT_IN("type 'Nonsense' is not supported yet", error_with(kWordPiece, "/post_processor", {{"type", "Nonsense"}}));
  EXPECT_IN("type 'CTC' is not supported yet", error_with(kWordPiece, "/decoder/type", "CTC"));
  EXPECT_IN("byte_fallback = true is not supported yet", error_with(kBytePair, "/model/byte_fallback", true));
  EXPECT_IN("end_of_word_suffix = \"</w>\" is not supported yet",
            error_with(kBytePair, "/model/end_of_word_suffix", "</w>"));
  EXPECT_IN("dropout is not supported", error_with(kBytePair, "/model/dropout", 0.1));
  EXPECT_IN("without a ByteLevel pre-tokenizer", error_with(kBytePair, "/pre_tokenizer", nullptr));
  EXPECT_IN("only supported with model type BPE", error_with(kWordPiece, "/pre_tokenizer", {{"type", "ByteLevel"}}));
  EXPECT_IN(
      "supported: GPT-2's regular expression",
      error_with(kBytePair, "/pre_tokenizer",
                 {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+$"}}}, {"behavior", "Isolated"}, {"invert", false}}));
  EXPECT_IN("version '2.0' is not supported", error_with(kWordPiece, "/version", "2.0"));
}

TEST(HostileTokenizerJson, TemplatesMustBeWhole) {
  Json processor =
      Json::parse(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}],
                                   "pair": [], "special_tokens": {}})");
  EXPECT_IN("special token '[CLS]' is not in special_tokens", error_with(kWordPiece, "/post_processor", processor));
  processor["single"] = Json::parse(R"([{"Sequence": {"id": "B", "type_id": 0}}])");
  EXPECT_IN("sequence 'B' cannot stand in 'single'", error_with(kWordPiece, "/post_processor", processor));
  processor["single"] = Json::parse(R"([{"Other": 3}])");
  EXPECT_IN("unexpected element", error_with(kWordPiece, "/post_processor", processor));
}

TEST(HostileTokenizerJson, TemplatesHoldEachTextOnce) {
  const Json a = Json::parse(R"({"Sequence": {"id": "A", "type_id": 0}})");
  const Json b = Json::parse(R"({"Sequence": {"id": "B", "type_id": 1}})");
  const auto error = [](const Json& single, const Json& pair) {
    const Json processor{
        {"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", Json::object()}};
    return error_with(kWordPiece, "/post_processor", processor);
  };
  EXPECT_IN("'single' must hold each text once", error(Json::array({a, a}), Json::array({a, b})));
  EXPECT_IN("'single' must hold each text once", error(Json::array(), Json::array({a, b})));
  EXPECT_IN("'pair' must hold each text once", error(Json::array({a}), Json::array({a})));
  EXPECT_IN("'pair' must hold each text once", error(Json::array({a}), Json::array({a, b, b})));
}

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("strake_tokenizer_folder_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const char* name, std::string_view content) { write_file_atomically(folder_ / name, content); }
  std::string error_of_load() {
    return strake::error_of([&] { Tokenizer::load(folder_); }).text;
  }

  fs::path folder_;
};

constexpr char kVocabTxt[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nfog\nThe\n##s\n";

TEST_F(FolderTest, VocabTxtMayHaveDuplicateAndWindowsLines) {
  write("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\nfog\r\nthe  \r\nfog\r\n");
  const auto tokenizer = Tokenizer::load(folder_ / "vocab.txt");
  EXPECT_EQ(tokenizer->encode("the fog").ids, (std::vector<int32_t>{2, 6, 7, 3}));  // of equal lines the last counts
  EXPECT_EQ(tokenizer->id_to_token(5), "fog");
  EXPECT_EQ(tokenizer->vocab_size(), 7);
}

TEST_F(FolderTest, VocabTxtMustHaveTheSpecialTokensOrGainsThem) {
  write("vocab.txt", "the\nfog\n");
  EXPECT_IN("unknown token '[UNK]' is not in the vocabulary", error_of_load());
  write("vocab.txt", "");
  EXPECT_IN("vocabulary is empty", error_of_load());
  write("vocab.txt", "[UNK]\n\xff\n");
  EXPECT_IN("not valid UTF-8 at byte 6", error_of_load());
}

TEST_F(FolderTest, ASpecialTokenThatIsNeededMayNotBeNull) {
  write("vocab.txt", kVocabTxt);
  write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "cls_token": null})");
  EXPECT_IN("cls_token is null", error_of_load());
}

TEST_F(FolderTest, TokenizerConfigDecidesCaseAndLength) {
  write("vocab.txt", kVocabTxt);
  EXPECT_EQ(Tokenizer::load(folder_)->encode("The fogs").ids, (std::vector<int32_t>{2, 5, 6, 8, 3}));
  EXPECT_EQ(Tokenizer::load(folder_)->model_max_length(), std::nullopt);
  write("tokenizer_config.json",
        R"({"do_lower_case": false, "model_max_length": 512, "tokenizer_class": "BertTokenizer"})");
  EXPECT_EQ(Tokenizer::load(folder_)->encode("The fogs").ids, (std::vector<int32_t>{2, 7, 6, 8, 3}));
  EXPECT_EQ(Tokenizer::load(folder_)->model_max_length(), 512);
  write("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(Tokenizer::load(folder_)->model_max_length(), std::nullopt);
}

TEST_F(FolderTest, ModelInputNamesDecideWhetherAModelIsGivenTokenTypes) {
  write("vocab.txt", kVocabTxt);
  const auto types = [&](const Json& config) {
    write("tokenizer_config.json", config.dump());
    return Tokenizer::load(folder_)->encode("fog", "the").type_ids;
  };
  const std::vector<int32_t> by_text{0, 0, 0, 1, 1};
  const std::vector<int32_t> none(5, 0);
  EXPECT_EQ(types({{"tokenizer_class", "BertTokenizer"}}), by_text);
  EXPECT_EQ(types({{"tokenizer_class", "DistilBertTokenizer"}}), none);
  const Json without{"input_ids", "attention_mask"};
  EXPECT_EQ(types({{"tokenizer_class", "BertTokenizer"}, {"model_input_names", without}}), none);
  const Json with{"input_ids", "token_type_ids", "attention_mask"};
  EXPECT_EQ(types({{"tokenizer_class", "DistilBertTokenizerFast"}, {"model_input_names", with}}), by_text);
  write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "model_input_names": "input_ids"})");
  EXPECT_IN("model_input_names is not a list", error_of_load());
}

// Roles of a model's own, as transformers 5 reads them.
TEST_F(FolderTest, SpecialTokensMayHaveOtherRoles) {
  write("vocab.txt", kVocabTxt);
  const auto ids = [this](const char* config, const char* map = "{}") {
    write("tokenizer_config.json", config);
    write("special_tokens_map.json", map);
    return Tokenizer::load(folder_)->encode("the <X> fog").ids;
  };
  constexpr int32_t kNew = 9;
  const std::vector<int32_t> with_new{2, 5, kNew, 6, 3};
  EXPECT_NE(ids("{}"), with_new);
  for (const char* config :
       {R"({"extra_special_tokens": {"image_token": "<X>"}})", R"({"extra_special_tokens": ["<X>"]})",
        R"({"model_specific_special_tokens": {"image_token": "<X>"}})",
        R"({"image_token": {"content": "<X>", "normalized": false}})"}) {
    EXPECT_EQ(ids(config), with_new) << config;
    EXPECT_EQ(ids("{}", config), with_new) << config;
  }
  EXPECT_EQ(ids("{}", R"({"additional_special_tokens": ["<X>"]})"), with_new);
  write("special_tokens_map.json", "{}");
  write("tokenizer_config.json", R"({"image_token": "<X>", "video_token": "<Y>"})");
  EXPECT_IN("'<X>' and '<Y>' are new special tokens in no order", error_of_load());
  write("tokenizer_config.json", R"({"split_special_tokens": true})");
  EXPECT_IN("split_special_tokens = true is not supported yet", error_of_load());
}

TEST_F(FolderTest, AnotherClassIsNotTakenForOneOfThose) {
  write("vocab.txt", kVocabTxt);
  write("tokenizer_config.json", R"({"tokenizer_class": "BertJapaneseTokenizer"})");
  EXPECT_IN("tokenizer_class 'BertJapaneseTokenizer' is not known here", error_of_load());
  write("tokenizer_config.json", R"({"tokenizer_class": "ElectraTokenizerFast"})");
  EXPECT_EQ(Tokenizer::load(folder_)->encode("The fogs").ids, (std::vector<int32_t>{2, 5, 6, 8, 3}));
}

TEST_F(FolderTest, ABareVocabularySavesAFolderThatLoadsTheSame) {
  write("words.txt", kVocabTxt);
  const auto tokenizer = Tokenizer::load(folder_ / "words.txt");
  tokenizer->save(folder_ / "saved");
  EXPECT_EQ(read_file(folder_ / "saved/vocab.txt", 1000), kVocabTxt);
  const Json config = read_json(folder_ / "saved/tokenizer_config.json", 1000);
  EXPECT_EQ(config, Json({{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", true}}));
  EXPECT_EQ(Tokenizer::load(folder_ / "saved")->fingerprint(), tokenizer->fingerprint());
}

TEST_F(FolderTest, AFolderSavesItsFilesAsFound) {
  write("vocab.txt", kVocabTxt);
  write("tokenizer_config.json", R"( {"do_lower_case":   false} )");
  write("special_tokens_map.json", R"({"mask_token": {"content": "[MASK]", "lstrip": true}})");
  const auto tokenizer = Tokenizer::load(folder_);
  tokenizer->save(folder_ / "saved");
  for (const char* name : {"vocab.txt", "tokenizer_config.json", "special_tokens_map.json"})
    EXPECT_EQ(read_file(folder_ / "saved" / name, 1000), read_file(folder_ / name, 1000));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "saved"), {}), 3);
  const Encoding encoding = tokenizer->encode("the   [MASK] fog");
  EXPECT_EQ(encoding.offsets[2], (std::pair{3, 12}));  // lstrip: the spaces are part of the mask
}

TEST_F(FolderTest, VocabJsonAndMergesTxtAreAByteLevelTokenizer) {
  write("vocab.json",
        R"({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "ab": 6, "\u0120": 7, "<mask>": 8})");
  write("merges.txt", "#version: 0.2\na b\n");
  EXPECT_EQ(Tokenizer::load(folder_)->encode("ab ba").ids, (std::vector<int32_t>{0, 6, 7, 5, 4, 2}));
  write("merges.txt", "#version: 0.2\na b c\n");
  EXPECT_IN("not two tokens", error_of_load());
  write("merges.txt", "a z\n");
  EXPECT_IN("needs token 'z'", error_of_load());
  write("vocab.json", "{\"a\": 4294967295}");
  EXPECT_IN("id 4294967295 of token 'a' is outside", error_of_load());
}

TEST_F(FolderTest, DifferentTokenizersHaveDifferentFingerprints) {
  write("vocab.txt", kVocabTxt);
  const std::string lowercased = Tokenizer::load(folder_)->fingerprint();
  EXPECT_EQ(lowercased.size(), 32U);
  write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_NE(Tokenizer::load(folder_)->fingerprint(), lowercased);
  write("tokenizer_config.json", R"({"do_lower_case": true})");
  EXPECT_EQ(Tokenizer::load(folder_)->fingerprint(), lowercased);
  write("vocab.txt", std::string(kVocabTxt) + "more\n");
  EXPECT_NE(Tokenizer::load(folder_)->fingerprint(), lowercased);
}

TEST_F(FolderTest, AFolderWithoutATokenizerIsNamed) {
  EXPECT_IN("no tokenizer.json, no vocab.txt", error_of_load());
  EXPECT_IN(folder_.string(), error_of_load());
  write("vocab.txt", kVocabTxt);
  write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
  EXPECT_IN("vocab.json and merges.txt, or tokenizer.json, are needed", error_of_load());
  write("tokenizer_config.json", R"([1])");
  EXPECT_IN("expected an object", error_of_load());
}

}  // namespace
}  // namespace strake::tokenizers::hostile_files_test
