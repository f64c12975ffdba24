#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "strake/core/crc32c.h"
#include "strake/training/sharded_parameters.h"

// The model on disk: master weights under Hugging Face's names, as from_pretrained() reads them, in fp32: exact also
// for those of bf16.
namespace strake::training {

using FileSums = std::map<std::string, FileSum>;  // of files that a rank has written, by name

// model.safetensors, written by rank 0 block by block. Collective.
FileSums write_model(const models::Model& model, ShardedParameters& parameters, const std::filesystem::path& folder);

// The same spread over files that the ranks write side by side, model-00001-of-0000W.safetensors and so on, with
// model.safetensors.index.json; a lone rank writes model.safetensors. Each rank writes whole blocks, of which it holds
// one at a time. Collective.
FileSums write_model_parts(const models::Model& model, ShardedParameters& parameters,
                           const std::filesystem::path& folder);

// Removes what an earlier model has left beside model.safetensors: numbered files and their index.
void remove_other_weights(const std::filesystem::path& folder);

// Fills the parameters from either form. Collective. Error (kConfig) if a tensor is missing or does not fit.
void read_model(const models::Model& model, ShardedParameters& parameters, const std::filesystem::path& folder);

}  // namespace strake::training
