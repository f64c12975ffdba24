#pragma once

#include <cstdint>
#include <span>

#include "strake/data/token_dataset.h"
#include "strake/tensors/packed_batch.h"

namespace strake::data {

// The sequences at `indices`, one after the other, as a batch. Labels are int64 [S] or float [S], by the dataset's
// kind.
tensors::PackedBatch collate(const TokenDataset& dataset, std::span<const int64_t> indices);

}  // namespace strake::data
