#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace strake::tensors {

inline constexpr int64_t kIgnoredLabel = -100;  // of what has none, as PyTorch's losses understand it

// A micro-batch without padding: the tokens of all sequences one after the other. T tokens, S sequences.
struct PackedBatch {
  at::Tensor input_ids;       // int32 [T]
  at::Tensor token_type_ids;  // int32 [T]
  at::Tensor positions;       // int32 [T], from 0 in each sequence
  at::Tensor token_rows;      // int64 [T], sequence of the dataset of each token: keys its dropout
  at::Tensor offsets;         // int32 [S + 1], first token of each sequence, then T
  // int64 [S] or [T] class ids or [S, 2] places of tokens, or float [S] or [S, num_labels]; undefined: there are none.
  at::Tensor labels;

  // Of a masked language model (models/encoder/token_masking.h), undefined of others; in memory of the host.
  at::Tensor masked;   // int64 [N], places of the tokens that are predicted, in order
  at::Tensor targets;  // int32 [N], their ids; input_ids may have others there

  // Of a batch on a GPU, or one that was filled up: the one it was made from, on the host and as it was.
  std::shared_ptr<const PackedBatch> host = nullptr;
  const PackedBatch& on_host() const { return host ? *host : *this; }

  int64_t num_tokens() const { return input_ids.numel(); }
  int64_t num_sequences() const { return offsets.numel() - 1; }
};

// The batch with a multiple of `multiple` tokens: what is missing is one more sequence, behind the others, of tokens
// that stand for nothing. Losses and outputs of sequences are those of on_host()'s sequences, so that its gradients are
// 0.
PackedBatch filled_up(const PackedBatch& batch, int64_t multiple);

// Tokens that a batch of so many has on a GPU: small ones are filled up on their way.
int64_t tokens_on_gpu(int64_t tokens);

// Values on a device; themselves if they are there. A GPU is not waited for: it copies from page-locked memory when it
// gets there.
at::Tensor to_device(const at::Tensor& values, at::Device device);

// The batch on a device, filled up if it is small; itself if it is there.
PackedBatch to_device(PackedBatch batch, at::Device device);

}  // namespace strake::tensors
