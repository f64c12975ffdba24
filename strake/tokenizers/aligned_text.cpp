#include "strake/tokenizers/aligned_text.h"

#include "strake/core/utf8.h"
#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {

AlignedText align(std::string_view text, int32_t first_char) {
  AlignedText aligned;
  aligned.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++first_char)
    aligned.push_back({next_char(text, at), first_char, first_char + 1});
  return aligned;
}

void append_aligned(std::span<const AlignedChar> text, std::string& out) {
  for (const AlignedChar& c : text) append_utf8(c.value, out);
}

std::string to_utf8(std::span<const AlignedChar> text) {
  std::string utf8;
  utf8.reserve(text.size());
  append_aligned(text, utf8);
  return utf8;
}

}  // namespace strake::tokenizers
