#pragma once

#include "strake/models/block.h"

namespace strake::models::layers {

// Places of the first token of each sequence [S], which all have one, and of the masked tokens [N], on the batch's
// device.
at::Tensor first_places(const tensors::PackedBatch& batch);
at::Tensor masked_places(const tensors::PackedBatch& batch);

// Tokens at some places, none of them twice: [T, H] -> [places, H].
at::Tensor select_tokens(const at::Tensor& hidden, const at::Tensor& places);

// These tokens as sequences of one token: for what comes behind select_tokens.
tensors::PackedBatch tokens_at(const tensors::PackedBatch& batch, const at::Tensor& places);

// Its plan.
PlannedTensor select_tokens(PlannedGraph& graph, const PlannedTensor& hidden, int64_t places);

}  // namespace strake::models::layers
