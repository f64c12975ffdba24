#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "strake/core/json.h"
#include "strake/kernels/bias_activation.h"

namespace strake::models {

// A Hugging Face config.json of GPT-2. Every value is checked against a range, so that a hostile file cannot ask for
// absurd allocations; what strake does not compute is refused by name rather than ignored.
struct Gpt2Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;        // n_embd
  int64_t num_layers = 0;         // n_layer
  int64_t num_heads = 0;          // n_head
  int64_t intermediate_size = 0;  // n_inner, by default 4 n_embd
  int64_t max_positions = 0;      // n_positions, in old files n_ctx
  kernels::Activation activation = kernels::Activation::kGeluTanh;
  double embedding_dropout = 0;
  double attention_dropout = 0;  // of attention probabilities
  double residual_dropout = 0;   // after attention and feed-forward
  double layer_norm_eps = 1e-5;
  double initializer_range = 0.02;
  bool scale_attention = true;      // scores by 1 / sqrt(head width)
  bool tie_word_embeddings = true;  // the output projection is the word embedding

  Json document;  // the file itself: written back with the architecture brought up to date
};

// Checks a configuration; `source` is named in errors (kConfig).
Gpt2Config parse_gpt2_config(const Json& document, const std::string& source);
// Whether the folder's config.json says so. Errors as of read_json().
bool is_gpt2(const std::filesystem::path& folder);
// The config.json of a folder.
Gpt2Config read_gpt2_config(const std::filesystem::path& folder);

// The config.json of these weights, loadable by AutoModelForCausalLM.
std::string to_json_text(const Gpt2Config& config, const std::string& dtype);

}  // namespace strake::models
