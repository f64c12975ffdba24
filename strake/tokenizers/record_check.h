#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strake/core/json.h"
#include "strake/tokenizers/fast_encoder.h"
#include "strake/tokenizers/tokenizer.h"

// For tests: compares a tokenizer with records that pip tokenizers made (see tools/make_tokenizer_fixtures.py).
namespace strake::tokenizers {

inline Direction to_direction(const Json& json) {
  return json.value("direction", "right") == "left" ? Direction::kLeft : Direction::kRight;
}

inline EncodeOptions to_options(const Json& record) {
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
    if (!p.at("pad_to_multiple_of").is_null())
      options.padding->pad_to_multiple_of = p.at("pad_to_multiple_of").get<int64_t>();
  }
  return options;
}

// `like` says which fields the record has.
inline Json to_json(const Encoding& encoding, const Json& like) {
  Json json{{"ids", encoding.ids},
            {"type_ids", encoding.type_ids},
            {"attention_mask", encoding.attention_mask},
            {"special_tokens_mask", encoding.special_tokens_mask},
            {"offsets", encoding.offsets}};
  if (like.contains("tokens")) json["tokens"] = encoding.tokens;
  if (like.contains("words")) {
    for (const TokenSource& source : encoding.sources) json["words"].push_back({source.text, source.word});
  }
  return json;
}

inline void check_encodings(const Tokenizer& tokenizer, const Json& record) {
  const std::string text = record.at("text");
  std::optional<std::string> pair;
  if (!record.at("text_pair").is_null()) pair = record.at("text_pair").get<std::string>();
  const Json expected = record.value("encodings", Json::array());
  Json actual = Json::array();
  try {
    const Encoding encoding = tokenizer.encode(text, pair, to_options(record));
    const Json like = expected.empty() ? Json::object() : expected[0];
    actual.push_back(to_json(encoding, like));
    for (const Encoding& window : encoding.overflowing) actual.push_back(to_json(window, like));
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), record.value("error", "an error was not expected"));
    return;
  }
  EXPECT_EQ(actual, expected);
}

inline void check_decoding(const Tokenizer& tokenizer, const Json& record) {
  const auto ids = record.at("ids").get<std::vector<int32_t>>();
  EXPECT_EQ(tokenizer.decode(ids, {.skip_special_tokens = record.at("skip_special_tokens").get<bool>()}),
            record.at("text").get<std::string>());
}

// That FastEncoder agrees with Tokenizer::encode on text and pair, whole and truncated.
inline void check_fast(FastEncoder& fast, std::string_view text, std::optional<std::string_view> pair) {
  for (const std::optional<int64_t> max_length : {std::optional<int64_t>(), std::optional<int64_t>(9)}) {
    EncodeOptions options;
    if (max_length) options.truncation = Truncation{.max_length = *max_length};
    const Encoding expected = fast.tokenizer().encode(text, pair, options);
    std::vector<int32_t> ids{-7};
    const size_t zeros = fast.encode(text, pair, max_length, ids);
    ids.erase(ids.begin());
    EXPECT_EQ(ids, expected.ids);
    EXPECT_EQ(zeros, static_cast<size_t>(std::ranges::count(expected.type_ids, 0)));
  }
}

// Calls check(record) for every line; returns how many there were.
inline int for_each_record(const std::filesystem::path& path, const std::function<void(const Json&)>& check) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line) && !testing::Test::HasFailure(); ++count) {
    SCOPED_TRACE(line.substr(0, 300));
    check(Json::parse(line));
  }
  return count;
}

}  // namespace strake::tokenizers
