#include "strake/tokenizers/unicode.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "strake/core/utf8.h"
#include "strake/tokenizers/unicode_tables.h"

namespace strake::tokenizers {
namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr int kBlockBits = 7;
constexpr char32_t kBlockSize = 1 << kBlockBits;
constexpr int kClassBits = 11;
constexpr char32_t kCapitalIWithDot = 0x130;

// Hangul syllables decompose by arithmetic (Unicode, section 3.12).
constexpr char32_t kHangulFirst = 0xAC00, kHangulCount = 11172, kJamoL = 0x1100, kJamoV = 0x1161, kJamoT = 0x11A7;
constexpr char32_t kVowels = 21, kTrails = 28;

// The packed tables unfolded for constant-time look-up: equal blocks of 128 characters are stored once.
class CharTables {
 public:
  CharTables() {
    std::vector<uint16_t> classes = unfold_classes();
    unfold_decompositions(classes);
    unfold_lowercase(classes);
    unfold_combining(classes);
    share_blocks(classes);
  }

  uint16_t char_class(char32_t c) const {
    return c < kCodePoints ? blocks_[(size_t{block_of_[c >> kBlockBits]} << kBlockBits) | (c & (kBlockSize - 1))] : 0;
  }
  uint8_t combining_class(char32_t c) const { return find_range(combining_, c, uint8_t{0}); }
  int32_t lower_delta(char32_t c) const { return find_range(lowercase_, c, int32_t{0}); }
  std::span<const uint32_t> decomposition(char32_t c) const {
    const auto at = std::ranges::lower_bound(decomposed_, c, {}, &Decomposition::from);
    return {kDecompositions + at->first, at->length};
  }

 private:
  template <typename Value>
  struct Range {
    char32_t first, last;
    Value value;
  };
  struct Decomposition {
    char32_t from;
    uint32_t first, length;
  };

  template <typename Value>
  static Value find_range(const std::vector<Range<Value>>& ranges, char32_t c, Value otherwise) {
    const auto at = std::ranges::lower_bound(ranges, c, {}, &Range<Value>::last);
    return at != ranges.end() && at->first <= c ? at->value : otherwise;
  }

  static std::vector<uint16_t> unfold_classes() {
    std::vector<uint16_t> classes;
    classes.reserve(kCodePoints);
    for (const uint32_t run : std::span(kClassRuns, kClassRuns_size))
      classes.insert(classes.end(), run >> kClassBits, static_cast<uint16_t>(run & ((1 << kClassBits) - 1)));
    return classes;
  }
  void unfold_decompositions(std::vector<uint16_t>& classes) {
    char32_t from = 0;
    for (uint32_t at = 0; at < kDecompositions_size;) {
      const uint32_t head = kDecompositions[at++];
      from += head >> 3;
      decomposed_.push_back({from, at, head & 7});
      at += head & 7;
      classes[from] |= kDecomposes;
    }
    for (char32_t c = kHangulFirst; c < kHangulFirst + kHangulCount; ++c) classes[c] |= kDecomposes;
  }
  void unfold_lowercase(std::vector<uint16_t>& classes) {
    for (size_t at = 0; at < kLowercaseRanges_size; at += 4) {
      const int32_t* range = kLowercaseRanges + at;
      for (int32_t c = range[0]; c <= range[1]; c += range[2]) {
        lowercase_.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c), range[3]});
        classes[static_cast<size_t>(c)] |= kHasLower;
      }
    }
    classes[kCapitalIWithDot] |= kHasLower;
    std::ranges::sort(lowercase_, {}, &Range<int32_t>::first);
  }
  void unfold_combining(std::vector<uint16_t>& classes) {
    for (size_t at = 0; at < kCombiningRanges_size; at += 3) {
      const uint32_t* range = kCombiningRanges + at;
      combining_.push_back({range[0], range[0] + range[1], static_cast<uint8_t>(range[2])});
      for (char32_t c = range[0]; c <= range[0] + range[1]; ++c) classes[c] |= kCombines;
    }
  }
  void share_blocks(const std::vector<uint16_t>& classes) {
    std::map<std::vector<uint16_t>, uint16_t> known;
    for (size_t first = 0; first < classes.size(); first += kBlockSize) {
      const std::vector<uint16_t> block(classes.begin() + static_cast<ptrdiff_t>(first),
                                        classes.begin() + static_cast<ptrdiff_t>(first + kBlockSize));
      const auto [found, is_new] = known.emplace(block, static_cast<uint16_t>(known.size()));
      if (is_new) blocks_.insert(blocks_.end(), block.begin(), block.end());
      block_of_[first >> kBlockBits] = found->second;
    }
  }

  std::array<uint16_t, (kCodePoints >> kBlockBits)> block_of_{};
  std::vector<uint16_t> blocks_;
  std::vector<Decomposition> decomposed_;
  std::vector<Range<int32_t>> lowercase_;
  std::vector<Range<uint8_t>> combining_;
};

const CharTables& tables() {
  static const CharTables kTables;
  return kTables;
}

}  // namespace

uint16_t char_class(char32_t c) { return tables().char_class(c); }
uint8_t combining_class(char32_t c) { return tables().combining_class(c); }

int decompose(char32_t c, char32_t (&out)[4]) {
  if (c - kHangulFirst < kHangulCount) {
    const char32_t index = c - kHangulFirst;
    out[0] = kJamoL + index / (kVowels * kTrails);
    out[1] = kJamoV + index % (kVowels * kTrails) / kTrails;
    out[2] = kJamoT + index % kTrails;
    return index % kTrails == 0 ? 2 : 3;
  }
  if (!(char_class(c) & kDecomposes)) {
    out[0] = c;
    return 1;
  }
  const std::span<const uint32_t> target = tables().decomposition(c);
  std::ranges::copy(target, out);
  return static_cast<int>(target.size());
}

int lowercase(char32_t c, char32_t (&out)[2]) {
  out[0] = c;
  if (c < 0x80) {
    if (c - U'A' < 26) out[0] = c + 0x20;
    return 1;
  }
  if (!(char_class(c) & kHasLower)) return 1;
  if (c == kCapitalIWithDot) {
    out[0] = U'i';
    out[1] = 0x307;
    return 2;
  }
  out[0] = static_cast<char32_t>(static_cast<int32_t>(c) + tables().lower_delta(c));
  return 1;
}

char32_t next_char(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[at + i])); };
  const char32_t lead = byte(0);
  char32_t c = lead;
  if (lead < 0x80) {
    at += 1;
  } else if (lead < 0xE0) {
    c = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    at += 2;
  } else if (lead < 0xF0) {
    c = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    at += 3;
  } else {
    c = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    at += 4;
  }
  return c;
}

std::string to_valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const Utf8Part part = first_utf8_part(text);
    valid += part.is_character ? text.substr(0, part.length) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(part.length);
  }
  return valid;
}

namespace {

// None: no character of white space.
std::optional<size_t> length_of_space(std::string_view text) {
  const Utf8Part part = first_utf8_part(text);
  if (!part.is_character) return std::nullopt;
  size_t at = 0;
  const char32_t c = next_char(text, at);
  const bool is_space = (char_class(c) & kSpace) != 0 || (c >= 0x1C && c <= 0x1F);
  return is_space ? std::optional(part.length) : std::nullopt;
}

}  // namespace

std::string_view strip(std::string_view text) {
  while (!text.empty()) {
    const std::optional<size_t> length = length_of_space(text);
    if (!length) break;
    text.remove_prefix(*length);
  }
  while (!text.empty()) {
    const size_t start = previous_character(text, text.size());
    if (length_of_space(text.substr(start)) != text.size() - start) break;
    text = text.substr(0, start);
  }
  return text;
}

std::string_view trim_end(std::string_view text) {
  while (!text.empty()) {
    const size_t start = previous_character(text, text.size());
    size_t at = start;
    if (!(char_class(next_char(text, at)) & kSpace)) break;
    text = text.substr(0, start);
  }
  return text;
}

}  // namespace strake::tokenizers
