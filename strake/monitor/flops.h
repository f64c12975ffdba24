#pragma once

#include <cstdint>
#include <span>

namespace strake::monitor {

// What the arithmetic of a packed batch depends on. Batches add up, so one can be kept for a whole run.
struct PackedWork {
  double tokens = 0;
  double sequences = 0;
  double squared_lengths = 0;  // sum over sequences of length squared: the size of attention's score matrices

  PackedWork& operator+=(const PackedWork& other);
};

// `offsets` [S + 1]: first token of each sequence, then the number of tokens.
PackedWork packed_work(std::span<const int32_t> offsets);

// An encoder with a classification or regression head on the first token: dense (hidden x hidden), then num_labels
// outputs (BERT's pooler and classifier; RoBERTa's and DistilBERT's heads have the same shapes).
struct EncoderShape {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_labels = 0;
};

// A causal language model: each position attends to itself and those before it, and every token but the first of its
// sequence is predicted.
struct DecoderShape {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;
};

// Floating-point operations of the model's matrix products (a multiply-add is 2), on real tokens only: per layer
// 2 (4 h^2 + 2 h f) per token and 4 h L^2 per sequence of length L, 2 h L (L + 1) if attention is causal; embeddings,
// norms and activations count 0.
// Hugging Face's total_flos instead is 6 x parameters x padded tokens, without attention.
double forward_flops(const EncoderShape& shape, const PackedWork& work);
double forward_flops(const DecoderShape& shape, const PackedWork& work);

// Forward and backward (twice the forward), without recomputation: the numerator of model FLOPs utilization.
double training_flops(const EncoderShape& shape, const PackedWork& work);
double training_flops(const DecoderShape& shape, const PackedWork& work);

}  // namespace strake::monitor
