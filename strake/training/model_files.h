#pragma once

#include <filesystem>

#include "strake/training/sharded_parameters.h"
#include "strake/training/tensor_files.h"

// The model on disk: master weights under Hugging Face's names, as from_pretrained() reads them, in fp32: exact also
// for those of bf16.
namespace strake::training {

// model.safetensors, written by rank 0 block by block. Collective.
void write_model(const models::Model& model, ShardedParameters& parameters, TensorFiles& files);

// The same spread over files that the ranks write side by side, model-00001-of-0000W.safetensors and so on, with
// model.safetensors.index.json; a lone rank writes model.safetensors. Each rank writes whole blocks, of which it holds
// one at a time. Collective.
void write_model_parts(const models::Model& model, ShardedParameters& parameters, TensorFiles& files);

// Elements of the rank's part.
int64_t elements_of_part(const models::Model& model, int rank, int num_ranks);

// Removes what an earlier model has left beside model.safetensors: numbered files and their index.
void remove_other_weights(const std::filesystem::path& folder);

// Fills the parameters from either form. Collective. Error (kConfig) if a tensor is missing or does not fit.
void read_model(const models::Model& model, ShardedParameters& parameters, const std::filesystem::path& folder);

}  // namespace strake::training
