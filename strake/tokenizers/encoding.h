#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strake::tokenizers {

// Where a token comes from.
struct TokenSource {
  int32_t text = -1;  // 0: the first, 1: the second of a pair, -1: none, it was added
  int32_t word = -1;  // which of the text's pieces that the model splits into tokens; they count from 0

  bool operator==(const TokenSource&) const = default;
};

// What a text (or a pair) becomes. All vectors but `overflowing` are equally long.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;                     // 0: first text, 1: second text, or as the template says
  std::vector<int32_t> attention_mask;               // 0 on padding
  std::vector<int32_t> special_tokens_mask;          // 1 on tokens that the template or padding added
  std::vector<std::pair<int32_t, int32_t>> offsets;  // [begin, end) in code points of its own text; (0, 0) if added
  std::vector<std::string> tokens;
  std::vector<TokenSource> sources;
  std::vector<Encoding> overflowing;  // the further windows of a truncated text; they have none themselves
  bool was_cut = false;               // truncation left tokens out, or to further windows

  size_t size() const { return ids.size(); }
};

enum class TruncationStrategy {
  kLongestFirst,  // the longer text loses tokens until both are equally long, then both
  kOnlyFirst,
  kOnlySecond
};
enum class Direction { kRight, kLeft };  // the side at which tokens are removed or padding is added

struct Truncation {
  int64_t max_length;  // with special tokens
  int64_t stride = 0;  // tokens that neighbouring windows share
  TruncationStrategy strategy = TruncationStrategy::kLongestFirst;
  std::optional<Direction> direction = std::nullopt;  // none: the tokenizer's, which mostly is right
};

struct Padding {
  std::optional<int64_t> length = std::nullopt;              // none: the longest window of this encoding, as it is
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;  // applied to the length
  Direction direction = Direction::kRight;
  int32_t pad_id = 0;
  int32_t pad_type_id = 0;
  std::string pad_token = "[PAD]";
};

// Cuts `encoding` to `max_length` tokens; the windows that follow, each sharing `stride` tokens with the one before,
// are put in `overflowing`. Error (kConfig) if stride >= max_length > 0.
void truncate(Encoding& encoding, int64_t max_length, int64_t stride, Direction direction);

// Truncates a text and its pair (may be null) together to max_length tokens without special tokens, from the right if
// no direction is given.
// Error (kData) if an only_first or only_second text is too short to give way.
void truncate_pair(Encoding& first, Encoding* second, const Truncation& truncation);
// How many tokens of two texts that are more than `room` in all kLongestFirst keeps.
std::pair<int64_t, int64_t> longest_first(int64_t first, int64_t second, int64_t room);

// Tokens [begin, end), without further windows.
Encoding part_of(const Encoding& encoding, int64_t begin, int64_t end);

// The tokens, [begin, end), of a second text of `size` tokens that truncate_pair with kOnlySecond would put into each
// window beside a first text of `first_size`. The same errors.
std::vector<std::pair<int64_t, int64_t>> windows_of_second(int64_t first_size, int64_t size,
                                                           const Truncation& truncation);

// Appends `next`; the windows of both are combined in every way but the first with the first.
void append(Encoding& encoding, Encoding next);

// Pads `encoding` and its windows.
void pad(Encoding& encoding, const Padding& padding);

}  // namespace strake::tokenizers
