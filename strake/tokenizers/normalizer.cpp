#include "strake/tokenizers/normalizer.h"

#include <algorithm>
#include <utility>

#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {
namespace {

bool is_space(const AlignedChar& c) { return char_class(c.value) & kSpace; }

void drop(AlignedText& text, uint16_t classes) {
  std::erase_if(text, [classes](const AlignedChar& c) { return char_class(c.value) & classes; });
}

void clean(AlignedText& text) {
  drop(text, kCleaned);
  for (AlignedChar& c : text)
    if (is_space(c)) c.value = U' ';
}

// Of most texts nothing changes, or a character becomes one other: they need no second text beside them, which of a
// long one would be most of the memory.
void set_chinese_apart(AlignedText& text) {
  if (std::ranges::none_of(text, [](const AlignedChar& c) { return char_class(c.value) & kChinese; })) return;
  AlignedText spaced;
  spaced.reserve(text.size());
  for (const AlignedChar& c : text) {
    const bool chinese = char_class(c.value) & kChinese;
    if (chinese) spaced.push_back({U' ', c.begin, c.end});
    spaced.push_back(c);
    if (chinese) spaced.push_back({U' ', c.begin, c.end});
  }
  text = std::move(spaced);
}

void lowercase_all(AlignedText& text) {
  char32_t out[2];
  auto next = text.begin();
  for (; next != text.end() && lowercase(next->value, out) == 1; ++next) next->value = out[0];
  if (next == text.end()) return;
  AlignedText lower(text.begin(), next);
  lower.reserve(text.size());
  for (; next != text.end(); ++next) {
    const int length = lowercase(next->value, out);
    for (int i = 0; i < length; ++i) lower.push_back({out[i], next->begin, next->end});
  }
  text = std::move(lower);
}

bool stays_in_decomposition(const AlignedChar& c) { return (char_class(c.value) & (kDecomposes | kCombines)) == 0; }

// Hugging Face aligns characters by position after the canonical reordering, not by where they come from: a character
// that is the first of its decomposition takes the next original character, any other shares the previous one's.
void decompose_all(AlignedText& text) {
  if (std::ranges::all_of(text, stays_in_decomposition)) return;
  struct Piece {
    char32_t value;
    uint8_t combining;
    bool first;
    size_t place;  // marks of one class keep their order
  };
  std::vector<Piece> pieces;
  pieces.reserve(text.size());
  for (const AlignedChar& c : text) {
    char32_t out[4];
    const int length = decompose(c.value, out);
    for (int i = 0; i < length; ++i) pieces.push_back({out[i], combining_class(out[i]), i == 0, pieces.size()});
  }
  for (auto run = pieces.begin(); run != pieces.end();) {
    run = std::find_if(run, pieces.end(), [](const Piece& piece) { return piece.combining != 0; });
    const auto end = std::find_if(run, pieces.end(), [](const Piece& piece) { return piece.combining == 0; });
    std::ranges::sort(run, end, {}, [](const Piece& piece) { return std::pair(piece.combining, piece.place); });
    run = end;
  }
  AlignedText decomposed;
  decomposed.reserve(pieces.size());
  size_t next = 0;
  for (const Piece& piece : pieces) {
    if (piece.first) ++next;
    const AlignedChar& from = text[next == 0 ? 0 : next - 1];
    decomposed.push_back({piece.value, from.begin, from.end});
  }
  text = std::move(decomposed);
}

void apply(const BertNormalizer& options, AlignedText& text) {
  if (options.clean_text) clean(text);
  if (options.handle_chinese_chars) set_chinese_apart(text);
  if (options.strip_accents) {
    decompose_all(text);
    drop(text, kNonspacing);
  }
  if (options.lowercase) lowercase_all(text);
}
void apply(const Lowercase&, AlignedText& text) { lowercase_all(text); }
void apply(const Nfd&, AlignedText& text) { decompose_all(text); }
void apply(const StripAccents&, AlignedText& text) { drop(text, kMark); }
void apply(const Strip& sides, AlignedText& text) {
  const auto first = sides.left ? std::ranges::find_if_not(text, is_space) : text.begin();
  auto last = text.end();
  if (sides.right)
    while (last != first && is_space(*(last - 1))) --last;
  text = AlignedText(first, last);
}

}  // namespace

void normalize(const std::vector<Normalizer>& normalizers, AlignedText& text) {
  for (const Normalizer& normalizer : normalizers)
    std::visit([&text](const auto& chosen) { apply(chosen, text); }, normalizer);
}

}  // namespace strake::tokenizers
