#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strake::tokenizers {

// A character of normalized text and the range [begin, end) of code points of the original text it stands for.
struct AlignedChar {
  char32_t value;
  int32_t begin, end;
};
using AlignedText = std::vector<AlignedChar>;

// `text` must be valid UTF-8; its first character is number `first_char` of the original.
AlignedText align(std::string_view text, int32_t first_char);

std::string to_utf8(std::span<const AlignedChar> text);
void append_aligned(std::span<const AlignedChar> text, std::string& out);

}  // namespace strake::tokenizers
