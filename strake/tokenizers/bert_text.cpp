#include "strake/tokenizers/bert_text.h"

#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {

BertText::BertText(const BertNormalizer& options) : options_(options) {
  for (unsigned byte = 0; byte < 0x100; ++byte) kinds_[byte] = byte < 0x80 ? kind_of(byte) : kNotAscii;
  for (unsigned byte = 0; byte < 0x80; ++byte) {
    AlignedText text{{byte, 0, 1}};
    tokenizers::normalize({options}, text);
    ascii_is_kept_[byte] = !text.empty();
    ascii_[byte] = text.empty() ? '\0' : static_cast<char>(text[0].value);
  }
}

void BertText::normalize(std::string_view text, TextBuffer& out) const {
  constexpr size_t kMostPerChar = 64;  // generous: spaces and four code points, each lowercased to two
  out.clear();
  out.reserve_more(text.size() + kMostPerChar);
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (byte < 0x80) {
      out.push_if(ascii_[byte], ascii_is_kept_[byte]);
      ++at;
      continue;
    }
    out.reserve_more(text.size() - at + kMostPerChar);
    if (append_normalized(next_char(text, at), out)) continue;
    AlignedText aligned = align(text, 0);
    tokenizers::normalize({options_}, aligned);
    out.clear();
    out.append(to_utf8(aligned));
    return;
  }
}

bool BertText::append_normalized(char32_t c, TextBuffer& out) const {
  const uint16_t found = char_class(c);
  if (options_.clean_text) {
    if (found & kCleaned) return true;
    if (found & kSpace) {
      out.push(' ');
      return true;
    }
  }
  const bool apart = options_.handle_chinese_chars && (found & kChinese);
  if (apart) out.push(' ');
  char32_t pieces[4] = {c};
  const int count = options_.strip_accents ? decompose(c, pieces) : 1;
  for (int i = 0; i < count; ++i) {
    const uint16_t piece_class = char_class(pieces[i]);
    if (options_.strip_accents) {
      if (piece_class & kNonspacing) continue;
      if (piece_class & kCombines) return false;
    }
    char32_t lower[2] = {pieces[i]};
    const int lower_count = options_.lowercase && (piece_class & kHasLower) ? lowercase(pieces[i], lower) : 1;
    for (int j = 0; j < lower_count; ++j) out.append_char(lower[j]);
  }
  if (apart) out.push(' ');
  return true;
}

}  // namespace strake::tokenizers
