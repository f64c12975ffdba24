#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "strake/inference/encoder_source.h"
#include "strake/kernels/bias_activation.h"

namespace strake::inference {

// Of a linear layer, weight [outputs, inputs] and bias [outputs], or of a norm, both [columns].
struct DeviceAffine {
  at::Tensor weight, bias;
};

struct DeviceLayer {
  std::array<DeviceAffine, kLinears> linears;  // by Linear
  DeviceAffine attention_norm, output_norm;
};

// All weights of a model in the memory of one device, fp32 or rounded to bf16. Immutable.
struct DeviceWeights {
  at::Tensor word, position, token_type;  // [rows, hidden_size]; the last one undefined if the family has none
  DeviceAffine norm;                      // of the embeddings
  std::vector<DeviceLayer> layers;        // at least one
  std::optional<DeviceAffine> dense;      // of a SequenceHead
  kernels::Activation dense_activation = kernels::Activation::kTanh;
  std::optional<DeviceAffine> classifier;  // rounded, but in fp32: of a SequenceHead or TokenHead
  int64_t bytes = 0;
};

// Errors as of load_encoder_weights; kConfig for a plan of int8. Besides the result there is one block's fp32 copy, on
// the host.
DeviceWeights load_device_weights(const EncoderSource& from, at::Device device);

}  // namespace strake::inference
