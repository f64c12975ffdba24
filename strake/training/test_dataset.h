#pragma once

#include <cstdint>
#include <vector>

#include "strake/data/token_dataset.h"

namespace strake::training {

enum class TestLabels { kOfSequences, kOfTokens, kSpans };

// For tests: sequences of `length` tokens below `words`, with labels 0 and 1 in turn, of every third token none; or
// with spans of up to all of their tokens.
inline data::TokenDataset make_dataset(int64_t sequences, int64_t length, int64_t words = 1500,
                                       TestLabels labels = TestLabels::kOfSequences) {
  data::TokenDatasetBuilder builder("test");
  std::vector<int32_t> ids(static_cast<size_t>(length));
  std::vector<int32_t> classes(static_cast<size_t>(length));
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t t = 0; t < length; ++t) {
      ids[static_cast<size_t>(t)] = static_cast<int32_t>((7 * s + 13 * t) % words);
      classes[static_cast<size_t>(t)] = t % 3 == 0 ? data::kNoClass : static_cast<int32_t>((s + t) % 2);
    }
    data::TokenRow row{.ids = ids, .label = static_cast<int32_t>(s % 2), .row = s};
    if (labels == TestLabels::kOfTokens) row.label = data::TokenClasses{classes};
    if (labels == TestLabels::kSpans) row.label = data::TokenSpan{0, static_cast<int32_t>(s % length)};
    builder.append(row);
  }
  return builder.build();
}

}  // namespace strake::training
