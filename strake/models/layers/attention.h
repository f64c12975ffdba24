#pragma once

#include <optional>

#include "strake/kernels/attention.h"
#include "strake/models/block.h"

namespace strake::models::layers {

struct AttentionOptions {
  int64_t num_heads;
  kernels::AttentionMask mask = kernels::AttentionMask::kFull;
  std::optional<float> scale = std::nullopt;  // of the scores; none: 1 / sqrt(head width)
  kernels::Dropout dropout = {};              // of the attention probabilities
};

// Self-attention within each sequence of the batch: qkv [T, 3 H] (queries, keys, values side by side) -> [T, H].
at::Tensor self_attention(const at::Tensor& qkv, const AttentionOptions& options, const StepContext& context);

// Its plan.
struct PlannedAttention {
  int64_t num_heads;
  kernels::AttentionMask mask;
  double dropout;
};
PlannedTensor self_attention(PlannedGraph& graph, const PlannedTensor& qkv, const PlannedAttention& options);

}  // namespace strake::models::layers
