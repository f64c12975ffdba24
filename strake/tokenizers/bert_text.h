#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "strake/tokenizers/normalizer.h"
#include "strake/tokenizers/text_buffer.h"

namespace strake::tokenizers {

// BertNormalizer and BertPreTokenizer on UTF-8, without alignments, with tables for ASCII.
class BertText {
 public:
  explicit BertText(const BertNormalizer& options);

  // Replaces the content of `out` by the normalized form of `text`, which must be valid UTF-8.
  void normalize(std::string_view text, TextBuffer& out) const;

  // Calls visit(word, length) for the words and punctuation marks of normalized text, until it returns false.
  template <typename Visit>
  void for_each_word(std::string_view text, const Visit& visit) const {
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      Kind kind = kind_at(text, at);
      if (kind == kSpaces) continue;
      while (kind == kWords && at < text.size()) {
        while (at < text.size() && kinds_[static_cast<uint8_t>(text[at])] == kWords) ++at;
        if (at == text.size() || kinds_[static_cast<uint8_t>(text[at])] != kNotAscii) break;
        size_t next = at;
        kind = kind_at(text, next);
        if (kind == kWords) at = next;
      }
      if (!visit(text.data() + begin, at - begin)) return;
    }
  }

 private:
  enum Kind : uint8_t { kSpaces, kMarks, kWords, kNotAscii };

  static Kind kind_of(char32_t c) {
    const uint16_t found = char_class(c);
    return found & kSpace ? kSpaces : found & kPunctuation ? kMarks : kWords;
  }
  // Moves `at` behind the character.
  Kind kind_at(std::string_view text, size_t& at) const {
    const auto kind = static_cast<Kind>(kinds_[static_cast<uint8_t>(text[at])]);
    if (kind == kNotAscii) return kind_of(next_char(text, at));
    ++at;
    return kind;
  }
  // False if the character takes part in canonical reordering, which needs the whole text.
  bool append_normalized(char32_t c, TextBuffer& out) const;

  BertNormalizer options_;
  std::array<char, 128> ascii_{};          // what a character becomes
  std::array<bool, 128> ascii_is_kept_{};  // false: removed
  std::array<uint8_t, 256> kinds_{};
};

}  // namespace strake::tokenizers
