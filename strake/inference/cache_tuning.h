#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "strake/inference/encoder_weights.h"
#include "strake/kernels/cache_blocks.h"

namespace strake::inference {

// In which blocks the linear layers of a model are multiplied, by Linear: those in fp32 or bf16, and those in int8.
// Measured once, when weights are packed, and kept in the same file; of a file from another processor, at each start.
// Results do not depend on them.
struct LayerBlocks {
  std::array<kernels::CacheBlocks, kLinears> plain;
  std::array<kernels::CacheBlocks, kLinears> quantized;
  bool operator==(const LayerBlocks&) const = default;
};

// Multiplies by the weight on the calling thread, some tens of times. The blocks differ from the kernel's own only
// where that is clearly faster.
template <typename T>
kernels::CacheBlocks measure_blocks(const kernels::PackedMatrix<T>& weight);
kernels::CacheBlocks measure_blocks(const kernels::QuantizedMatrix& weight);

// Of the first layer that has the form: about a second for a model of BERT-base's size.
template <typename T>
LayerBlocks measure_blocks(const EncoderWeights<T>& weights);

template <typename T>
void use_blocks(const LayerBlocks& blocks, EncoderWeights<T>& weights);

// One line that names the processor. None for what was measured on another processor, or what is no such line.
std::string text_of(const LayerBlocks& blocks);
std::optional<LayerBlocks> parse_blocks(std::string_view text);

// The candidate with the least seconds, or the first one where that is not clearly faster. `seconds` runs a candidate
// once; they take turns, because other work on the machine comes and goes.
size_t fastest(size_t candidates, const std::function<double(size_t)>& seconds);

}  // namespace strake::inference
