#include "strake/core/error.h"

#include <gtest/gtest.h>

#include <vector>

#include "strake/core/crc32c.h"
#include "strake/core/nearest_name.h"

namespace strake::error_test {
namespace {

TEST(Error, CarriesKindMessageLocationAndContext) {
  try {
    require(1 + 1 == 3, ErrorKind::kData, "row {} has {} columns", 7, 2);
    FAIL() << "require did not throw";
  } catch (Error& error) {
    error.add_context("while reading a.csv");
    EXPECT_STREQ(error.what(), "row 7 has 2 columns (while reading a.csv)");
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_EQ(exit_code(error.kind()), 3);
    EXPECT_NE(std::string(error.where().file_name()).find("error_test.cpp"), std::string::npos);
  }
}

TEST(Error, ItsLineNamesProgramAndKind) {
  EXPECT_EQ(error_line(ErrorKind::kComm, "rank 1 is gone"), "strake: communication error: rank 1 is gone\n");
}

TEST(Printable, EscapesControlCharactersAndCutsBetweenCharacters) {
  EXPECT_EQ(printable("a\x1b[31m\r\n"), "a\\x1b[31m\\x0d\\x0a");
  EXPECT_EQ(printable("ab\xC3\xA9z", 3), "ab\xC3\xA9...");
  EXPECT_EQ(printable("\xC2\x9BJ"), "\\xc2\\x9bJ");  // another way to begin a command
}

TEST(Printable, EscapesWhatIsNoUtf8) {
  const std::string sound = "\xC2\xA0 \xE0\xA0\x80 \xED\x9F\xBF \xF0\x90\x80\x80 \xF4\x8F\xBF\xBF";
  EXPECT_EQ(printable(sound), sound);
  EXPECT_EQ(printable("caf\xE9!"), "caf\\xe9!");
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf");                    // longer than needed
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  EXPECT_EQ(printable("a\xE2\x82"), "a\\xe2\\x82");                  // cut
}

TEST(NearestName, FindsMisspellingsAndNothingFarOff) {
  const std::vector<std::string> names{"learning_rate", "warmup_ratio", "seed"};
  EXPECT_EQ(nearest_name("learnign_rate", names), "learning_rate");
  EXPECT_EQ(did_you_mean("sed", names), "; did you mean 'seed'?");
  EXPECT_EQ(nearest_name("completely_other", names), "");
}

TEST(Crc32c, MatchesPublishedVectors) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);                    // RFC 3720, appendix B.4
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAU);  // same
  EXPECT_EQ(crc32c("6789", 4, crc32c("12345", 5)), 0xE3069283U);
}

}  // namespace
}  // namespace strake::error_test
