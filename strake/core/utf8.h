#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// UTF-8 by RFC 3629: no surrogates, no overlong forms, at most U+10FFFF (Unicode 15, table 3-7).
namespace strake {

// What a text begins with: a character, or the longest part of bytes that belong to none (as Rust's from_utf8_lossy and
// Python's "replace" cut them).
struct Utf8Part {
  size_t length = 0;  // bytes, at least 1
  bool is_character = false;
  bool incomplete = false;  // no character, as the text ends too early for it
};
Utf8Part first_utf8_part(std::string_view text);  // of a text that is not empty

// Where a text stops being UTF-8.
struct Utf8Check {
  size_t valid = 0;         // bytes of whole, valid characters at the start
  bool incomplete = false;  // the rest is the beginning of a character that more bytes could complete
};
Utf8Check check_utf8(std::string_view text);

// Bytes below 0x80 at the start.
size_t ascii_prefix(std::string_view text);

// Of valid UTF-8.
size_t count_characters(std::string_view text);

// Of valid UTF-8: where the character begins that ends before byte `end`, which is not 0.
inline size_t previous_character(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

// `c` is at most U+10FFFF.
void append_utf8(char32_t c, std::string& out);

}  // namespace strake
