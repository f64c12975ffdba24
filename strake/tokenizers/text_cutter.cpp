#include "strake/tokenizers/text_cutter.h"

#include <algorithm>

#include "strake/core/utf8.h"
#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {
namespace {

bool splits_before_space(const PreTokenizer& splitter) {
  if (const auto* byte_level = std::get_if<ByteLevelSplit>(&splitter)) return byte_level->use_regex;
  return !std::holds_alternative<Punctuation>(splitter) && !std::holds_alternative<Digits>(splitter);
}

bool adds_prefix_space(const PreTokenizer& splitter) {
  const auto* byte_level = std::get_if<ByteLevelSplit>(&splitter);
  return byte_level != nullptr && byte_level->add_prefix_space;
}

// Whether the character before `at` stays in the text, and something else than white space, whatever the normalizer.
bool is_behind_fixed_char(std::string_view text, size_t at) {
  if (at == 0) return false;
  at = previous_character(text, at);
  constexpr uint16_t kMayGo = kSpace | kRegexSpace | kCleaned | kMark | kNonspacing | kCombines | kChinese;
  return (char_class(next_char(text, at)) & kMayGo) == 0;
}

}  // namespace

TextCutter::TextCutter(const TokenizerSpec& spec, const AddedTokens& added) {
  const auto is_strip = [](const Normalizer& normalizer) { return std::holds_alternative<Strip>(normalizer); };
  const auto crosses_space = [&added](const auto& entry) {
    const auto& [id, token] = entry;
    return token.normalized && (token.rstrip || added.shown(id)->find_first_of(" \n") != std::string::npos);
  };
  can_cut_ = std::ranges::any_of(spec.pre_tokenizers, splits_before_space) &&
             std::ranges::none_of(spec.normalizers, is_strip) && std::ranges::none_of(added.tokens(), crosses_space);
  // A part that begins with a space gets no other one before it.
  cuts_lines_ = std::ranges::none_of(spec.pre_tokenizers, adds_prefix_space);
}

size_t TextCutter::part_end(std::string_view text, size_t begin) const {
  if (!can_cut_ || text.size() - begin <= kPartBytes) return text.size();
  const char* const ends = cuts_lines_ ? " \n" : " ";
  size_t end = text.find_first_of(ends, begin + kPartBytes);
  while (end != std::string_view::npos && !is_behind_fixed_char(text, end)) end = text.find_first_of(ends, end + 1);
  return std::min(end, text.size());
}

}  // namespace strake::tokenizers
