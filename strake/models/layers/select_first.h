#pragma once

#include "strake/models/block.h"

namespace strake::models::layers {

// The first token of each sequence: [T, H] -> [S, H].
at::Tensor select_first(const at::Tensor& hidden, const tensors::PackedBatch& batch);

// These tokens as sequences of one token: for what comes behind select_first.
tensors::PackedBatch first_tokens(const tensors::PackedBatch& batch);

// Its plan, and that of any `count` rows.
PlannedTensor select_first(PlannedGraph& graph, const PlannedTensor& hidden);
PlannedTensor select_rows(PlannedGraph& graph, const PlannedTensor& hidden, int64_t count);

}  // namespace strake::models::layers
