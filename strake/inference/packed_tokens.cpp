#include "strake/inference/packed_tokens.h"

#include <algorithm>

#include "strake/models/encoder/embeddings.h"

namespace strake::inference {

void write_places(const PackedTokens& tokens, const models::PositionRule& rule, const TokenPlaces& places) {
  const std::span<const int32_t> ids = tokens.own_ids();
  for (int64_t s = 0; s < tokens.num_sequences(); ++s) {
    const int64_t at = tokens.offsets[s] - tokens.offsets.front();
    const int64_t length = tokens.length(s);
    places.offsets[s] = static_cast<int32_t>(at);
    rule.write_rows(ids.subspan(at, length), places.positions + at);
    const int64_t zeros = tokens.second_begin.empty() ? length : std::min<int64_t>(length, tokens.second_begin[s]);
    std::fill_n(places.types + at, zeros, 0);
    std::fill_n(places.types + at + zeros, length - zeros, 1);
  }
  places.offsets[tokens.num_sequences()] = static_cast<int32_t>(tokens.num_tokens());
}

}  // namespace strake::inference
