#include "strake/tokenizers/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {
namespace {

using Chars = std::span<const AlignedChar>;

uint16_t class_at(Chars text, size_t at) { return char_class(text[at].value); }

// Pieces of `text` in which `group_of` gives neighbouring characters the same number: 0 is dropped, 1 stands alone,
// others form runs.
template <typename GroupOf>
void split_by_group(const AlignedText& text, const Piece& piece, const GroupOf& group_of, std::vector<Piece>& out) {
  constexpr int kDropped = 0, kAlone = 1;
  size_t start = piece.begin;
  while (start < piece.end) {
    const int group = group_of(class_at(text, start));
    size_t end = start + 1;
    while (group != kAlone && end < piece.end && group_of(class_at(text, end)) == group) ++end;
    if (group != kDropped) out.push_back({start, end});
    start = end;
  }
}

// End of the match of GPT-2's regular expression that starts at `at`.
size_t gpt2_match_end(Chars text, size_t at) {
  using namespace std::string_view_literals;
  const auto is_char = [&](size_t i, char c) { return i < text.size() && text[i].value == static_cast<char32_t>(c); };
  if (is_char(at, '\'')) {
    for (const auto suffix : {"s"sv, "t"sv, "re"sv, "ve"sv, "m"sv, "ll"sv, "d"sv})
      if (is_char(at + 1, suffix[0]) && (suffix.size() == 1 || is_char(at + 2, suffix[1])))
        return at + 1 + suffix.size();
  }
  constexpr uint16_t kKinds = kLetter | kNumber | kRegexSpace;
  const size_t first = is_char(at, ' ') && at + 1 < text.size() ? at + 1 : at;
  const uint16_t kind = class_at(text, first) & kKinds;
  if (kind != kRegexSpace) {
    size_t end = first + 1;
    while (end < text.size() && (class_at(text, end) & kKinds) == kind) ++end;
    return end;
  }
  size_t end = at + 1;
  while (end < text.size() && (class_at(text, end) & kRegexSpace)) ++end;
  // \s+(?!\S): the last space of a run belongs to what follows, unless nothing follows or it is alone.
  return end == text.size() || end == at + 1 ? end : end - 1;
}

void split_gpt2(const AlignedText& text, const Piece& piece, std::vector<Piece>& out) {
  const Chars chars(text.data() + piece.begin, piece.end - piece.begin);
  for (size_t at = 0; at < chars.size();) {
    const size_t end = gpt2_match_end(chars, at);
    out.push_back({piece.begin + at, piece.begin + end});
    at = end;
  }
}

void split(const BertPreTokenizer&, const AlignedText& text, const Piece& piece, std::vector<Piece>& out) {
  split_by_group(text, piece, [](uint16_t c) { return c & kSpace ? 0 : c & kPunctuation ? 1 : 2; }, out);
}
void split(const ByteLevelSplit& options, const AlignedText& text, const Piece& piece, std::vector<Piece>& out) {
  if (options.use_regex) {
    split_gpt2(text, piece, out);
  } else {
    out.push_back(piece);
  }
}
void split(const Gpt2Split&, const AlignedText& text, const Piece& piece, std::vector<Piece>& out) {
  split_gpt2(text, piece, out);
}
void split(const WhitespaceSplit&, const AlignedText& text, const Piece& piece, std::vector<Piece>& out) {
  split_by_group(text, piece, [](uint16_t c) { return c & kSpace ? 0 : 2; }, out);
}
void split(const Whitespace&, const AlignedText& text, const Piece& piece, std::vector<Piece>& out) {
  split_by_group(text, piece, [](uint16_t c) { return c & kWord ? 2 : c & kSpace ? 0 : 3; }, out);
}
void split(const Punctuation&, const AlignedText& text, const Piece& piece, std::vector<Piece>& out) {
  split_by_group(text, piece, [](uint16_t c) { return c & kPunctuation ? 1 : 2; }, out);
}
void split(const Digits& options, const AlignedText& text, const Piece& piece, std::vector<Piece>& out) {
  const int digit = options.individual ? 1 : 3;
  split_by_group(text, piece, [digit](uint16_t c) { return c & kNumeric ? digit : 2; }, out);
}

bool wants_prefix(const PieceList& list, const Piece& piece) {
  return piece.added_id < 0 && list.text[piece.begin].value != U' ';
}

// The new space stands for the character before which it is put.
void add_prefix_spaces(PieceList& list) {
  PieceList prefixed;
  prefixed.text.reserve(list.text.size() + list.pieces.size());
  for (Piece piece : list.pieces) {
    const size_t begin = prefixed.text.size();
    if (wants_prefix(list, piece))
      prefixed.text.push_back({U' ', list.text[piece.begin].begin, list.text[piece.begin].end});
    prefixed.text.insert(prefixed.text.end(), list.text.begin() + static_cast<ptrdiff_t>(piece.begin),
                         list.text.begin() + static_cast<ptrdiff_t>(piece.end));
    prefixed.pieces.push_back({begin, prefixed.text.size(), piece.added_id});
  }
  list = std::move(prefixed);
}

void split_pieces(const PreTokenizer& pre_tokenizer, PieceList& list) {
  std::vector<Piece> pieces;
  for (const Piece& piece : list.pieces) {
    if (piece.added_id >= 0) {
      pieces.push_back(piece);
    } else {
      std::visit([&](const auto& chosen) { split(chosen, list.text, piece, pieces); }, pre_tokenizer);
    }
  }
  list.pieces = std::move(pieces);
}

}  // namespace

void pre_tokenize(const std::vector<PreTokenizer>& pre_tokenizers, bool prefix_space, PieceList& list) {
  for (const PreTokenizer& pre_tokenizer : pre_tokenizers) {
    const auto* byte_level = std::get_if<ByteLevelSplit>(&pre_tokenizer);
    if (byte_level != nullptr && (prefix_space || byte_level->add_prefix_space)) add_prefix_spaces(list);
    split_pieces(pre_tokenizer, list);
  }
}

}  // namespace strake::tokenizers
