#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {

// Finds the matches of GPT-2's regular expression (kGpt2Pattern) in UTF-8, with a table for ASCII.
class Gpt2Words {
 public:
  Gpt2Words() {
    for (unsigned byte = 0; byte < 0x80; ++byte) kinds_[byte] = kind_of(byte);
    for (unsigned byte = 0x80; byte < 0x100; ++byte) kinds_[byte] = kNotAscii;
  }

  // End of the match that starts at `at` < text.size().
  size_t match_end(std::string_view text, size_t at) const {
    if (text[at] == '\'') {
      if (const size_t length = contraction(text.substr(at + 1))) return at + 1 + length;
    }
    const size_t first = at + (text[at] == ' ' && at + 1 < text.size());  // a space belongs to what follows it
    size_t end = first + 1;
    uint8_t kind = kinds_[static_cast<uint8_t>(text[first])];
    if (kind == kNotAscii) {
      end = first;
      kind = kind_of(next_char(text, end));
    }
    if (kind == kSpaces) return spaces_end(text, at);
    return run_end(text, end, kind);
  }

 private:
  enum Kind : uint8_t { kOthers, kLetters, kNumbers, kSpaces, kNotAscii };

  static Kind kind_of(char32_t c) {
    const uint16_t found = char_class(c);
    return found & kLetter ? kLetters : found & kNumber ? kNumbers : found & kRegexSpace ? kSpaces : kOthers;
  }

  size_t run_end(std::string_view text, size_t end, uint8_t kind) const {
    while (true) {
      while (end < text.size() && kinds_[static_cast<uint8_t>(text[end])] == kind) ++end;
      if (end == text.size() || kinds_[static_cast<uint8_t>(text[end])] != kNotAscii) return end;
      size_t next = end;
      if (kind_of(next_char(text, next)) != kind) return end;
      end = next;
    }
  }

  // \s+(?!\S)|\s+: the last space of a run belongs to what follows, unless nothing follows or it is alone.
  size_t spaces_end(std::string_view text, size_t at) const {
    size_t end = at, last = at;
    while (end < text.size()) {
      size_t next = end;
      if (kind_of(next_char(text, next)) != kSpaces) break;
      last = end;
      end = next;
    }
    return end == text.size() || last == at ? end : last;
  }

  // Length of s, t, re, ve, m, ll or d at the start of `text`, or 0.
  static size_t contraction(std::string_view text) {
    if (text.empty()) return 0;
    const char first = text[0];
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
    return text.starts_with("re") || text.starts_with("ve") || text.starts_with("ll") ? 2 : 0;
  }

  std::array<uint8_t, 256> kinds_{};
};

}  // namespace strake::tokenizers
