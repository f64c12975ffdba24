#pragma once

#include <cstdint>

#include "strake/core/philox.h"
#include "strake/tensors/packed_batch.h"

namespace strake::models {

// What a masked language model has to predict (Devlin et al., "BERT", 2019, section 3.1): of each sequence, a
// `probability` of its tokens without the first and the last, which are special, to the nearest number and at least
// one. Of these 80 % are replaced by the mask token and 10 % by any token; the others stay.
struct TokenMasking {
  double probability = 0.15;
  int32_t mask_token = 0;
  int64_t num_tokens = 0;  // ids of random tokens are below

  // Of a sequence of `length` tokens, which has two special ones; 0 if it has no others.
  int64_t num_masked(int64_t length) const;
};

// The batch with its masked tokens replaced. Which ones, and by what, is a function of key, dataset row and position,
// so that it depends neither on the other sequences nor on who computes them.
tensors::PackedBatch mask_tokens(tensors::PackedBatch batch, const TokenMasking& masking, const PhiloxKey& key);

}  // namespace strake::models
