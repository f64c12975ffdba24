#pragma once

#include <memory>
#include <optional>
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
  const char* token_type_embeddings;  // null: the family has no token types
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

// config.json's names of what families spell differently; null: the family has no such value.
struct EncoderKeys {
  const char* hidden_size = "hidden_size";
  const char* num_layers = "num_hidden_layers";
  const char* num_heads = "num_attention_heads";
  const char* intermediate_size = "intermediate_size";
  const char* activation = "hidden_act";
  const char* dropout = "hidden_dropout_prob";
  const char* attention_dropout = "attention_probs_dropout_prob";
  const char* classifier_dropout = "classifier_dropout";
  const char* span_dropout = nullptr;
  const char* layer_norm_eps = "layer_norm_eps";
};

using HeadBuilder = std::unique_ptr<Block> (*)(const EncoderConfig& config, uint32_t first_site);

struct EncoderFamily {
  const char* model_type;          // config.json
  Json (*defaults)();              // of Transformers' configuration class, as far as they say how to compute
  const char* architecture;        // Transformers' class of the classifier
  const char* token_architecture;  // of the classifier of tokens
  const char* span_architecture;   // and of the model that finds answers
  EncoderNames names;
  HeadBuilder classification_head;
  MaskedHeadDesign masked_head;
  EncoderKeys keys = {};
  int64_t pad_token_id = 0;                  // where config.json has none
  bool positions_follow_padding = false;     // the first token's is pad_token_id + 1, and pad tokens have none
  bool drops_attention_output = true;        // with the probability of hidden_dropout
  std::optional<double> classifier_dropout;  // where config.json has none; empty: hidden_dropout
  double EncoderConfig::* token_dropout = &EncoderConfig::classifier_dropout;  // of the classifier of tokens
};

// All families; a new one is one entry here and one file.
std::span<const EncoderFamily> encoder_families();

// Error (kConfig) naming `source` and the supported families.
const EncoderFamily& find_family(const std::string& model_type, const std::string& source);

// With which names of tensors begin that belong to a head of the family, for whatever task; relative to the prefix.
std::vector<std::string> head_prefixes(const EncoderFamily& family, const EncoderConfig& config);

}  // namespace strake::models
