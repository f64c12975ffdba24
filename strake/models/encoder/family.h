#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strake/models/block.h"
#include "strake/models/encoder/config.h"
#include "strake/models/encoder/masked_head.h"

namespace strake::models {

// Hugging Face names of one encoder family. "{}" is the layer number; names are relative to the base model's prefix.
struct EncoderNames {
  const char* prefix;  // "bert."
  const char* word_embeddings;
  const char* position_embeddings;
  const char* token_type_embeddings;  // null: the family has none
  const char* embeddings_norm;
  const char* query;
  const char* key;
  const char* value;
  const char* attention_output;
  const char* attention_norm;
  const char* intermediate;
  const char* output;
  const char* output_norm;
};

using HeadBuilder = std::unique_ptr<Block> (*)(const EncoderConfig& config, uint32_t first_site);

struct EncoderFamily {
  const char* model_type;          // config.json
  const char* architecture;        // Transformers' class of the classifier
  const char* token_architecture;  // of the classifier of tokens
  const char* span_architecture;   // and of the model that finds answers
  EncoderNames names;
  HeadBuilder classification_head;
  MaskedHeadNames masked_head;
};

// All families; a new one is one entry here and one file.
std::span<const EncoderFamily> encoder_families();

// Error (kConfig) naming `source` and the supported families.
const EncoderFamily& find_family(const std::string& model_type, const std::string& source);

}  // namespace strake::models
