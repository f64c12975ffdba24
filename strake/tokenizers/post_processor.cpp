#include "strake/tokenizers/post_processor.h"

#include <algorithm>
#include <utility>

#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {
namespace {

constexpr char32_t kSpaceOfAlphabet = 0x120;

bool is_trimmed(char32_t c) { return c == kSpaceOfAlphabet || (char_class(c) & kSpace); }

void trim(Encoding& encoding, bool add_prefix_space) {
  for (size_t i = 0; i < encoding.size(); ++i) {
    const std::string& token = encoding.tokens[i];
    int32_t leading = 0, trailing = 0;
    bool only_spaces = true;
    for (size_t at = 0; at < token.size();) {
      const bool trimmed = is_trimmed(next_char(token, at));
      only_spaces &= trimmed;
      if (only_spaces) ++leading;
      trailing = trimmed ? trailing + 1 : 0;
    }
    auto& [begin, end] = encoding.offsets[i];
    if (leading > 0) {
      if ((i == 0 || begin == 0) && add_prefix_space && leading == 1) leading = 0;
      begin = std::min(begin + leading, end);
    }
    if (trailing > 0 && end >= trailing) end = std::max(end - trailing, begin);
  }
}

Encoding special(const TemplatePart& part) {
  Encoding encoding;
  encoding.ids = part.ids;
  encoding.tokens = part.tokens;
  encoding.type_ids.assign(part.ids.size(), part.type_id);
  encoding.attention_mask.assign(part.ids.size(), 1);
  encoding.special_tokens_mask.assign(part.ids.size(), 1);
  encoding.offsets.assign(part.ids.size(), {0, 0});
  encoding.sources.assign(part.ids.size(), {});
  return encoding;
}

}  // namespace

int64_t PostProcessor::added(bool is_pair) const {
  int64_t count = 0;
  for (const TemplatePart& part : of(is_pair)) count += static_cast<int64_t>(part.ids.size());
  return count;
}

void PostProcessor::drop_types() {
  for (Template* const parts : {&single, &pair}) {
    for (TemplatePart& part : *parts) part.type_id = 0;
  }
  types_of_windows = true;
}

Encoding PostProcessor::process(Encoding& first, Encoding* second, bool add_special_tokens) const {
  for (Encoding* encoding : {&first, second}) {
    if (encoding == nullptr) continue;
    for (const TrimOffsets& one : trims) {
      trim(*encoding, one.add_prefix_space);
      for (Encoding& window : encoding->overflowing) trim(window, one.add_prefix_space);
    }
  }
  Encoding result;
  for (const TemplatePart& part : of(second != nullptr)) {
    if (part.kind == TemplatePart::Kind::kSpecial) {
      if (add_special_tokens) append(result, special(part));
      continue;
    }
    Encoding& text = part.kind == TemplatePart::Kind::kFirst ? first : *second;
    std::ranges::fill(text.type_ids, part.type_id);
    if (types_of_windows && add_special_tokens)
      for (Encoding& window : text.overflowing) std::ranges::fill(window.type_ids, part.type_id);
    append(result, std::move(text));
  }
  return result;
}

}  // namespace strake::tokenizers
