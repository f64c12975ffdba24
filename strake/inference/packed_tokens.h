#pragma once

#include <cstdint>
#include <span>

namespace strake::models {
class PositionRule;
}

namespace strake::inference {

// Sequences without padding, one after the other. Sequence s has the ids [offsets[s], offsets[s + 1]).
struct PackedTokens {
  std::span<const int32_t> ids;
  std::span<const int64_t> offsets;            // [num_sequences + 1], ascending
  std::span<const int32_t> second_begin = {};  // [num_sequences]: the token of the sequence from which on the type is
                                               // 1; the length or more: none. Empty: no sequence has such tokens

  int64_t num_sequences() const { return std::ssize(offsets) - 1; }
  int64_t num_tokens() const { return offsets.back() - offsets.front(); }
  int64_t length(int64_t s) const { return offsets[s + 1] - offsets[s]; }
  // Of the sequences that are here.
  std::span<const int32_t> own_ids() const { return ids.subspan(offsets.front(), num_tokens()); }
  // Sequences [begin, end), with the same ids and offsets into them.
  PackedTokens slice(int64_t begin, int64_t end) const {
    return {ids, offsets.subspan(begin, end - begin + 1),
            second_begin.empty() ? second_begin : second_begin.subspan(begin, end - begin)};
  }
};

// What a model reads of tokens besides their ids.
struct TokenPlaces {
  int32_t* positions;  // [tokens]: rows of the position table
  int32_t* types;      // [tokens]
  int32_t* offsets;    // [sequences + 1], of the first sequence 0
};
void write_places(const PackedTokens& tokens, const models::PositionRule& rule, const TokenPlaces& places);

}  // namespace strake::inference
