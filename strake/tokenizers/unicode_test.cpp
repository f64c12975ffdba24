#include "strake/tokenizers/unicode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "strake/core/utf8.h"

namespace strake::tokenizers::unicode_test {
namespace {

// "".join(chr(c) for c in range(0x110000) if chr(c).isspace()) of Python 3.11
constexpr char32_t kPythonSpaces[] = {9,      10,     11,     12,     13,     28,     29,     30,     31,     32,
                                      0x85,   0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006,
                                      0x2007, 0x2008, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};

TEST(Strip, TakesWhatPythonTakes) {
  std::string spaces;
  for (const char32_t c : kPythonSpaces) append_utf8(c, spaces);
  EXPECT_EQ(strip(spaces), "");
  EXPECT_EQ(strip(spaces + "a b" + spaces), "a b");
  for (char32_t c = 0; c < 0x11000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string one;
    append_utf8(c, one);
    const bool is_space = std::ranges::find(kPythonSpaces, c) != std::end(kPythonSpaces);
    EXPECT_EQ(strip(one).empty(), is_space) << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(Strip, LeavesOtherTextsAndBrokenOnesAlone) {
  EXPECT_EQ(strip(""), "");
  EXPECT_EQ(strip("caf\u00e9"), "caf\u00e9");
  EXPECT_EQ(strip(" \u3042 "), "\u3042");
  for (const std::string& broken : {std::string("\x80"), std::string("\xC2"), std::string("a\xE3\x80"),
                                    std::string("\x80\x80\x80\x80\x80"), std::string("\xA0 a \xA0")}) {
    EXPECT_EQ(strip(broken), broken);
    EXPECT_EQ(strip(" " + broken), broken);
  }
}

}  // namespace
}  // namespace strake::tokenizers::unicode_test
