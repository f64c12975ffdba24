#include "strake/core/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace strake::utf8_test {
namespace {

TEST(Utf8Test, WholeCharactersAreValidAndCutOnesIncomplete) {
  const std::string text = "plain ascii, longer than a word, \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80";
  EXPECT_EQ(check_utf8(text).valid, text.size());
  EXPECT_EQ(check_utf8("").valid, 0U);
  for (size_t cut = 1; cut <= 3; ++cut) {
    const Utf8Check check = check_utf8(std::string_view(text).substr(0, text.size() - cut));
    EXPECT_EQ(check.valid, text.size() - 4);
    EXPECT_TRUE(check.incomplete);
  }
}

TEST(Utf8Test, ForbiddenFormsAreRefusedWhereTheyStart) {
  for (const std::string bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                                "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3(", "\xE2\x82("}) {
    const Utf8Check check = check_utf8("ab" + bad + "c");
    EXPECT_EQ(check.valid, 2U) << bad;
    EXPECT_FALSE(check.incomplete) << bad;
  }
}

TEST(Utf8Test, PartsThatAreNoCharactersAreAsLongAsPythonReplacesAtOnce) {
  const auto lengths = [](std::string_view text) {
    std::vector<size_t> found;
    for (; !text.empty(); text.remove_prefix(found.back())) found.push_back(first_utf8_part(text).length);
    return found;
  };
  EXPECT_EQ(lengths("a\xF0\x9F\x98z"), (std::vector<size_t>{1, 3, 1}));
  EXPECT_EQ(lengths("\xED\xA0\x80"), (std::vector<size_t>{1, 1, 1}));
  EXPECT_EQ(lengths("\xE2\x82"), (std::vector<size_t>{2}));
}

TEST(Utf8Test, AppendsEveryLengthOfCharacter) {
  std::string out;
  for (const char32_t c : {0x7FU, 0x80U, 0x7FFU, 0x800U, 0xFFFFU, 0x10000U, 0x10FFFFU}) append_utf8(c, out);
  EXPECT_EQ(out, "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF");
  EXPECT_EQ(check_utf8(out).valid, out.size());
}

}  // namespace
}  // namespace strake::utf8_test
