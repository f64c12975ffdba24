#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What Hugging Face's tokenizers believe about characters: a mixture of Unicode versions, see unicode_tables.cpp.
// All functions are pure and thread-safe.
namespace strake::tokenizers {

// Bits of char_class(). The first eleven are in the generated table, in this order.
enum CharClass : uint16_t {
  kSpace = 1 << 0,        // White_Space
  kCleaned = 1 << 1,      // removed by BertNormalizer's clean_text
  kChinese = 1 << 2,      // set apart by BertNormalizer (with its gap at U+2B820)
  kNonspacing = 1 << 3,   // Mn of Unicode 8
  kMark = 1 << 4,         // M*
  kPunctuation = 1 << 5,  // ASCII punctuation or P* of Unicode 8
  kLetter = 1 << 6,       // \p{L} of the regular expression engine
  kNumber = 1 << 7,       // \p{N} of the same
  kRegexSpace = 1 << 8,   // \s of the same
  kWord = 1 << 9,         // \w
  kNumeric = 1 << 10,     // char::is_numeric
  kDecomposes = 1 << 11,  // has a canonical decomposition
  kHasLower = 1 << 12,    // lower case differs
  kCombines = 1 << 13     // canonical combining class is not 0
};

uint16_t char_class(char32_t c);
uint8_t combining_class(char32_t c);

// Canonical decomposition (Unicode 9) of `c` written to `out`; returns how many code points (1 to 4).
int decompose(char32_t c, char32_t (&out)[4]);

// Lower case of one character, without context rules; returns 1 or 2.
int lowercase(char32_t c, char32_t (&out)[2]);

// Decodes the character at text[at] of valid UTF-8 and moves `at` behind it.
char32_t next_char(std::string_view text, size_t& at);

inline int utf8_length(char32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

// `text` with every maximal ill-formed part replaced by U+FFFD (as Rust's from_utf8_lossy).
std::string to_valid_utf8(std::string_view text);

// `text` without White_Space at its end.
std::string_view trim_end(std::string_view text);
// `text` without white space at both ends, as Python's str.strip() has it: White_Space and U+001C to U+001F.
std::string_view strip(std::string_view text);

}  // namespace strake::tokenizers
