#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "strake/core/mapped_file.h"
#include "strake/inference/encoder_source.h"
#include "strake/kernels/bias_activation.h"
#include "strake/kernels/int8_matmul.h"
#include "strake/kernels/matmul.h"

namespace strake::inference {

// y = x weight + bias
template <typename T>
struct LinearWeights {
  kernels::PackedMatrix<T> weight;  // [inputs, outputs]
  std::vector<T> bias;              // [outputs]
};

// The same in int8.
struct QuantizedLinear {
  kernels::QuantizedMatrix weight;
  std::vector<float> bias;
};

// A linear layer of an encoder layer, in one form or in both.
template <typename T>
struct LayerLinear {
  std::optional<LinearWeights<T>> plain;
  std::optional<QuantizedLinear> quantized;  // only if T is BFloat16
};

template <typename T>
struct NormWeights {
  std::vector<T> gamma, beta;
};

template <typename T>
struct LayerWeights {
  std::array<LayerLinear<T>, kLinears> linears;  // by Linear
  NormWeights<T> attention_norm;
  NormWeights<T> output_norm;
};

template <typename T>
struct EmbeddingWeights {
  at::Tensor word, position, token_type;  // [rows, hidden_size]; the last one undefined if the family has none
  NormWeights<T> norm;
};

// A head's: SequenceHead has both layers, TokenHead the classifier, PooledHead none.
template <typename T>
struct HeadWeights {
  std::optional<LinearWeights<T>> dense;
  kernels::Activation dense_activation = kernels::Activation::kTanh;
  std::optional<LinearWeights<T>> classifier;
};

// All weights of a model, rounded to T or quantized, matrices in the layout of the matrix products. Immutable.
template <typename T>
struct EncoderWeights {
  EmbeddingWeights<T> embeddings;
  std::vector<LayerWeights<T>> layers;  // at least one
  HeadWeights<T> head;
  int64_t bytes = 0;
  std::shared_ptr<const MappedFile> mapped;  // the packed file that they are views of; null: they are in memory
};

// Error (kConfig) if the folder has no such weights or, with the first missing tensor's name, no head, or if the plan
// names layers that the model does not have; kNumeric for weights that have no int8 form. T is float for the plan's
// precision kFp32, else BFloat16. Packs with the calling thread's number of threads; besides the result there is one
// block's fp32 copy at a time. The result is the same, bit by bit, whether it is packed or mapped from a PackedFile.
template <typename T>
EncoderWeights<T> load_encoder_weights(const EncoderSource& from);

}  // namespace strake::inference
