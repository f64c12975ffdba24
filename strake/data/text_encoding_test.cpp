#include "strake/data/text_encoding.h"

#include <gtest/gtest.h>

#include "strake/core/error.h"
#include "strake/core/utf8.h"

namespace strake::data::text_encoding_test {
namespace {

TEST(TextEncodingTest, Cp1252IsDecodedAsInPython) {
  std::string out;
  EXPECT_EQ(append_decoded("\x93It\x92s 5 \x80\x94 caf\xE9", TextEncoding::kCp1252, out), std::nullopt);
  EXPECT_EQ(out, "\u201CIt\u2019s 5 \u20AC\u201D caf\u00E9");
  for (const char undefined : {'\x81', '\x8D', '\x8F', '\x90', '\x9D'}) {
    EXPECT_EQ(append_decoded(std::string("ab") + undefined, TextEncoding::kCp1252, out), 2U);
  }
}

TEST(TextEncodingTest, Latin1MapsEveryByteToItsOwnNumber) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  std::string out;
  EXPECT_EQ(append_decoded(bytes, TextEncoding::kLatin1, out), std::nullopt);
  EXPECT_EQ(out.size(), 128U + 2 * 128U);
  EXPECT_EQ(check_utf8(out).valid, out.size());
  EXPECT_EQ(out.substr(128, 2), "\u0080");
  EXPECT_EQ(out.substr(out.size() - 2), "\u00FF");
}

TEST(TextEncodingTest, NamesAreParsedAndUnknownOnesListed) {
  EXPECT_EQ(parse_encoding("UTF-8"), TextEncoding::kUtf8);
  EXPECT_EQ(parse_encoding("Windows-1252"), TextEncoding::kCp1252);
  EXPECT_EQ(parse_encoding("latin-1"), TextEncoding::kLatin1);
  EXPECT_THROW(parse_encoding("utf-16"), Error);
}

}  // namespace
}  // namespace strake::data::text_encoding_test
