#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "strake/kernels/bias_activation.h"
#include "strake/kernels/matmul.h"
#include "strake/models/encoder/config.h"

namespace strake::inference {

// y = x weight + bias
template <typename T>
struct LinearWeights {
  kernels::PackedMatrix<T> weight;  // [inputs, outputs]
  std::vector<T> bias;              // [outputs]
};

template <typename T>
struct NormWeights {
  std::vector<T> gamma, beta;
};

template <typename T>
struct LayerWeights {
  LinearWeights<T> qkv;
  LinearWeights<T> attention_output;
  NormWeights<T> attention_norm;
  LinearWeights<T> intermediate;
  LinearWeights<T> output;
  NormWeights<T> output_norm;
};

template <typename T>
struct EmbeddingWeights {
  at::Tensor word, position, token_type;  // [rows, hidden_size]; the last one undefined if the family has none
  NormWeights<T> norm;
};

// All weights of a classifier, rounded to T, matrices in the layout of the matrix products. Immutable.
template <typename T>
struct EncoderWeights {
  EmbeddingWeights<T> embeddings;
  std::vector<LayerWeights<T>> layers;  // at least one
  LinearWeights<T> dense;
  kernels::Activation dense_activation;
  LinearWeights<T> classifier;
  int64_t bytes = 0;
};

// Error (kConfig) if the folder has no such weights or, with the first missing tensor's name, no head. Besides the
// result there is one block's fp32 copy at a time.
template <typename T>
EncoderWeights<T> load_encoder_weights(const std::filesystem::path& folder, const models::EncoderConfig& config);

}  // namespace strake::inference
