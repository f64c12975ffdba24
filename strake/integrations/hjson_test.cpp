#include "strake/integrations/hjson.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strake/core/json.h"
#include "strake/core/test_error.h"

namespace strake::integrations::hjson_test {
namespace {

using testing::StartsWith;

Json parsed(const std::string& text) { return parse_json(hjson_to_json(text, "text"), "text"); }

std::string problem(const std::string& text) {
  return error_of([&] { hjson_to_json(text, "text"); }).text;
}

TEST(Hjson, JsonIsItself) {
  const std::string json = R"({"a":[1,-0.5,2e-5,true,null,"x\n\"\u00e9",[],{}],"b":{"c":""}})";
  EXPECT_EQ(hjson_to_json(json, "text"), json);
  EXPECT_EQ(hjson_to_json(" [ 1 , { } ] ", "text"), "[1,{}]");
}

TEST(Hjson, CommentsAndCommasAreFree) {
  EXPECT_EQ(parsed(R"(# first
    {
      /* of
         two lines */ "a": 1 // one
      "b": [1, 2,
        3
        4,
      ],
      "c": 5 # no comma
    } // last)"),
            Json::parse(R"({"a": 1, "b": [1, 2, 3, 4], "c": 5})"));
}

TEST(Hjson, KeysAndBracesNeedNoSigns) {
  EXPECT_EQ(parsed("train_batch_size: 8\nfp16: {enabled: false}\n'it\\'s': 1\n"),
            Json::parse(R"({"train_batch_size": 8, "fp16": {"enabled": false}, "it's": 1})"));
}

TEST(Hjson, AStringWithoutQuotesEndsWithItsLine) {
  EXPECT_EQ(parsed("{a: nvme, and \"more\" # here }  \n b: 5 apples\r\n c: 1, d: true}"),
            Json::parse(R"({"a": "nvme, and \"more\" # here }", "b": "5 apples", "c": 1, "d": true})"));
  EXPECT_EQ(parsed("[-\n007\n1.\n1e\ntruth\nnull\n]"), Json::parse(R"(["-", "007", "1.", "1e", "truth", null])"));
  EXPECT_EQ(parsed("{path: c:\\new\\\"}\n}"), Json::parse(R"({"path": "c:\\new\\\"}"})"));
}

TEST(Hjson, SingleQuotesAreQuotes) {
  EXPECT_EQ(parsed(R"({a: 'say "no"', b: 'it\'s', c: "it's\t"})"),
            Json::parse(R"({"a": "say \"no\"", "b": "it's", "c": "it's\t"})"));
}

TEST(Hjson, AStringOfSeveralLinesLosesItsIndentation) {
  EXPECT_EQ(parsed("{\n  a: '''\n     one\n       'two'\n     '''\n}"), Json::parse(R"({"a": "one\n  'two'"})"));
  EXPECT_EQ(parsed("{a: '''one line''', b: ''''''}"), Json::parse(R"({"a": "one line", "b": ""})"));
}

TEST(Hjson, ProblemsHaveAPlace) {
  EXPECT_EQ(problem("{\n  a: 1\n  b 2\n}"), "text: line 3, column 5: found '2', expected the ':' behind a key");
  EXPECT_EQ(problem("{a: 1,, b: 2}"), "text: line 1, column 7: found ',', expected a key");
  EXPECT_EQ(problem("{a: }"), "text: line 1, column 5: found '}', expected a value");
  EXPECT_EQ(problem("{a:"), "text: line 1, column 4: expected a value, found the end");
  EXPECT_EQ(problem("a"), "text: line 1, column 1: expected a key and ':', found the end");
  EXPECT_EQ(problem(""), "text: line 1, column 1: expected a key and ':', found the end");
  EXPECT_EQ(problem("{} x"), "text: line 1, column 4: found 'x' behind the end of everything");
  EXPECT_EQ(problem("{},"), "text: line 1, column 3: found ',' behind the end of everything");
  EXPECT_EQ(problem("a: 1 }"), "text: line 1, column 6: found '}', expected a key");
  EXPECT_EQ(problem("{a: \"b\n\"}"), "text: line 1, column 7: found a control character in a string");
  EXPECT_EQ(problem("{a: 'b\\"), "text: line 1, column 5: the string has no end");
  EXPECT_EQ(problem("{a: '''b''"), "text: line 1, column 5: the string of several lines has no '''");
  EXPECT_EQ(
      problem("{\"a\": Infinity, \"b\": 1}"),
      "text: line 1, column 7: found what Python writes for a number that is not finite; leave the key out for its "
      "default");
  EXPECT_THAT(problem("{\n a: [tru]}"), StartsWith("text: line 2, column 6: what begins here is neither"));
  EXPECT_EQ(problem("{\n a: [1, 2}"), "text: line 2, column 10: found '}', expected a value");
  EXPECT_EQ(problem("{\n a: 1e400\n}"), "text: line 2, column 5: number 1e400 is out of range");
  EXPECT_EQ(problem("{\n a: \"tru\\e\"}"), "text: line 2, column 9: '\\' begins none of JSON's escapes");
  EXPECT_EQ(problem("{\n a: \"\\u12g4\"}"), "text: line 2, column 6: '\\' begins none of JSON's escapes");
  EXPECT_EQ(problem("{\n a: \"x\\u0000\"}"), "text: line 2, column 7: found a character of code 0");
  EXPECT_EQ(problem("{\n a: \xff\n}"), "text: line 2, column 5: found a byte that is not UTF-8");
  EXPECT_EQ(problem("{\n a: [1, 2"), "text: line 2, column 5: '[' has no ']'");
}

// A search for the end of the line from each value would take minutes.
TEST(Hjson, ReadsManyValuesOnOneLineInOnePass) {
  std::string line = "[0";
  for (int i = 1; i < 200'000; ++i) line += fmt::format(",{}", i);
  EXPECT_EQ(parsed("{a: " + line + "]}").at("a").size(), 200'000);
}

TEST(Hjson, HostileTextIsRefusedByOneOfTheTwo) {
  const std::string deep(100'000, '[');
  EXPECT_THROW(parsed(deep), Error);
  EXPECT_THROW(parsed(deep + std::string(100'000, ']')), Error);
  EXPECT_THROW(parsed("{a: \xff\n}"), Error);
  EXPECT_THROW(parsed("{a: 1, 'a': 2}"), Error);
  EXPECT_THROW(parsed("{a: \"\\x41\"}"), Error);
  EXPECT_THROW(parsed(std::string("{a: '") + '\0' + "'}"), Error);
}

}  // namespace
}  // namespace strake::integrations::hjson_test
