#pragma once

#include <cstdint>
#include <span>

#include "strake/data/token_dataset.h"
#include "strake/tensors/packed_batch.h"

namespace strake::data {

// The labels of the sequences at `indices`, by the dataset's kind int64 [S], float [S], or of lists of classes float
// [S, num_classes()], 1 for those that a row has and 0 for others, or of classes of tokens int64 [T], kIgnoredLabel for
// a token that has none, or of spans int64 [S, 2], the first and last token by their places among all T; undefined if
// there are none.
at::Tensor labels_of(const TokenDataset& dataset, std::span<const int64_t> indices);

// These sequences, one after the other, as a batch.
tensors::PackedBatch collate(const TokenDataset& dataset, std::span<const int64_t> indices);

}  // namespace strake::data
