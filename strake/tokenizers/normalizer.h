#pragma once

#include <variant>
#include <vector>

#include "strake/tokenizers/aligned_text.h"

// Normalizers of tokenizer.json. A new one is a struct, its name in tokenizer_json.cpp and an `apply` in
// normalizer.cpp.
namespace strake::tokenizers {

struct BertNormalizer {
  bool clean_text = true;            // drop control characters, make white space U+0020
  bool handle_chinese_chars = true;  // put spaces around CJK characters
  bool strip_accents = true;         // canonical decomposition, then drop nonspacing marks
  bool lowercase = true;
};
struct Lowercase {};
struct Nfd {};
struct StripAccents {};  // drops marks; decomposes nothing itself
struct Strip {
  bool left = true, right = true;
};

using Normalizer = std::variant<BertNormalizer, Lowercase, Nfd, StripAccents, Strip>;

// Applies the normalizers in order. Characters that arise from one original character share its range.
void normalize(const std::vector<Normalizer>& normalizers, AlignedText& text);

}  // namespace strake::tokenizers
