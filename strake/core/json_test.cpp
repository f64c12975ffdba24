#include "strake/core/json.h"

#include <gtest/gtest.h>

#include "strake/core/test_error.h"

namespace strake::json_test {
namespace {

std::string error_of(const std::string& text) {
  return strake::error_of([&] { parse_json(text, "config.json"); }).text;
}

TEST(Json, HostileTextIsRefusedWithItsSource) {
  EXPECT_NE(error_of(std::string(200000, '[')).find("deeper than 64"), std::string::npos);
  EXPECT_NE(error_of(R"({"a": 1, "a": 2})").find("key 'a' occurs twice"), std::string::npos);
  EXPECT_NE(error_of("1e999").find("config.json"), std::string::npos);
  EXPECT_NE(error_of("{\"a\": NaN}").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of("{\"a\": \"\xff\"}").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of("\"\\ud800\"").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of("{} {}").find("not valid JSON"), std::string::npos);
  EXPECT_EQ(error_of(R"({"a": {"b": [1, 2.5, "x", null, true]}, "b": 1})"), "no error");
}

TEST(Json, ManySmallValuesAreRefusedBeforeTheyTakeTheMemory) {
  std::string objects = "[{}";
  for (int i = 0; i < (16 << 20); ++i) objects += ",{}";
  EXPECT_NE(error_of(objects + "]").find("its values take more than 1024 MiB"), std::string::npos);
}

TEST(Json, TheTreeIsThatOfTheText) {
  const std::string text =
      R"({"b": {"a": [[], {}, [1, [2, {"x": null}]], "s\u00e9\n"], "z": {"b": 1}}, "a": [-1, 1.5, true, "", 1e2],)"
      R"( "large": 18446744073709551615, "": false})";
  EXPECT_EQ(parse_json(text, "c"), Json::parse(text));
  EXPECT_EQ(parse_json(text, "c").dump(), Json::parse(text).dump());
  for (const char* scalar : {"3", "-0.5", "\"x\"", "null", "true", "[]", "{}"}) {
    EXPECT_EQ(parse_json(scalar, "c"), Json::parse(scalar));
  }
  const std::string deepest = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(parse_json(deepest, "c"), Json::parse(deepest));
  EXPECT_NE(error_of("[" + deepest + "]").find("deeper than 64"), std::string::npos);
}

TEST(Json, KeysMayRepeatInOtherObjectsOnly) {
  EXPECT_EQ(error_of(R"({"a": {"a": [{"a": 1}, {"a": 2}]}, "b": {"a": 3}})"), "no error");
  EXPECT_NE(error_of(R"({"b": [{"a": 1, "c": {}, "a": 2}]})").find("key 'a' occurs twice"), std::string::npos);
  EXPECT_NE(error_of(R"({"": 1, "": 2})").find("key '' occurs twice"), std::string::npos);
}

TEST(Json, TypedAccessNamesTheKey) {
  const Json object = parse_json(R"({"n": 3, "s": "x", "f": 1.5, "z": null})", "c");
  EXPECT_EQ(get_required<int>(object, "n", "c"), 3);
  EXPECT_EQ(get_or<int>(object, "absent", 7, "c"), 7);
  EXPECT_EQ(get_or<int>(object, "z", 7, "c"), 7);
  EXPECT_EQ(get_or<double>(object, "n", 0.0, "c"), 3.0);
  EXPECT_THROW(get_or<int>(object, "s", 0, "c"), Error);
  EXPECT_THROW(get_or<int>(object, "f", 0, "c"), Error);
  EXPECT_THROW(get_or<bool>(object, "n", false, "c"), Error);
  EXPECT_THROW(get_required<int>(object, "absent", "c"), Error);
}

TEST(Json, ErrorsSayWhatAKeyMayBe) {
  const Json object = parse_json(R"({"s": "x", "n": 3, "l": [1]})", "c");
  const auto refusal = [&](const auto& fallback, const char* key) -> std::string {
    return strake::error_of([&] { get_or(object, key, fallback, "c"); }).text;
  };
  EXPECT_EQ(refusal(false, "n"), "c: key 'n' has the unexpected value 3, expected true or false");
  EXPECT_EQ(refusal(uint32_t{0}, "s"),
            "c: key 's' has the unexpected value \"x\", expected an integer from 0 to 4294967295");
  EXPECT_EQ(refusal(0.5, "s"), "c: key 's' has the unexpected value \"x\", expected a number");
  EXPECT_EQ(refusal(std::string(), "n"), "c: key 'n' has the unexpected value 3, expected a string");
  EXPECT_EQ(refusal(std::vector<std::string>(), "l"),
            "c: key 'l' has the unexpected value [1], expected a list of strings");
}

TEST(Json, TextHasNoBytesThatAreNoUtf8) {
  EXPECT_EQ(json_text(Json{{"path", "caf\xE9"}, {"n", 1}}), "{\"n\":1,\"path\":\"caf\xEF\xBF\xBD\"}");
  EXPECT_EQ(json_text(nlohmann::ordered_json{{"b", 1}, {"a", 2}}, 1), "{\n \"b\": 1,\n \"a\": 2\n}");
}

TEST(Json, IntegersThatDoNotFitAreRefused) {
  const Json object = parse_json(R"({"minus": -1, "large": 4294967296, "largest": 18446744073709551615})", "c");
  EXPECT_EQ(get_required<uint64_t>(object, "largest", "c"), UINT64_MAX);
  EXPECT_EQ(get_required<int64_t>(object, "large", "c"), int64_t{1} << 32);
  EXPECT_EQ(get_required<int32_t>(object, "minus", "c"), -1);
  EXPECT_THROW(get_required<uint64_t>(object, "minus", "c"), Error);
  EXPECT_THROW(get_required<uint32_t>(object, "large", "c"), Error);
  EXPECT_THROW(get_required<int32_t>(object, "large", "c"), Error);
  EXPECT_THROW(get_required<int64_t>(object, "largest", "c"), Error);
}

}  // namespace
}  // namespace strake::json_test
