#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "strake/models/model.h"
#include "strake/tensors/checkpoint_files.h"

namespace strake::models {

struct WeightSource {
  const Model& model;  // that the block is part of
  const tensors::CheckpointFiles& files;
  uint64_t seed = 0;                      // of initial values
  bool ignores_mismatched_sizes = false;  // head tensors of other shapes count as missing
};

// Fills `flat` (fp32, block.layout().numel()) from the checkpoint, or, for head parameters that a base checkpoint
// lacks, with initial values: normal(0, initializer_range) for weights, zeros for biases, a pure function of (seed,
// name); their names are added to `initialized`. Missing tensors of the encoder and shapes that differ from config.json
// are errors (kConfig).
void load_block(const Block& block, const WeightSource& source, at::Tensor& flat,
                std::vector<std::string>& initialized);

// What load_block looks at without reading values: names, shapes and dtypes; the same errors. Of one block, for those
// who would take memory for what config.json says, or of all.
void check_block(const Block& block, const WeightSource& source);
void check_tensors(const WeightSource& source);

// Initial values as load_block gives them, without a checkpoint.
void initialize_block(const Block& block, double initializer_range, uint64_t seed, at::Tensor& flat);

// Name and shape of a tensor in a checkpoint.
struct CheckpointTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// The block's tensors as a checkpoint has them.
std::vector<CheckpointTensor> checkpoint_tensors(const Block& block);

// The same with their values, as views of `flat`: not contiguous where a checkpoint has them transposed.
std::vector<tensors::NamedTensor> named_weights(const Block& block, const at::Tensor& flat);

// Names in `files` that no block uses.
std::vector<std::string> unused_names(const Model& model, const tensors::CheckpointFiles& files);

}  // namespace strake::models
