#include "strake/models/gpt2/config.h"

#include <array>

#include "strake/core/error.h"
#include "strake/models/config_values.h"

namespace strake::models {
namespace {

void refuse_other_attention(const Json& json, const std::string& source) {
  for (const char* key : {"add_cross_attention", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"}) {
    refuse_flag(json, key, source);
  }
  refuse_other_loading(json, source);
  require(!json.contains("pruned_heads") || json["pruned_heads"].empty(), ErrorKind::kConfig,
          "{}: pruned_heads are not supported", source);
}

void read_dimensions(Gpt2Config& config, const std::string& source) {
  const Json& json = config.document;
  config.vocab_size = bounded(json, "vocab_size", 10'000'000, source);
  config.hidden_size = bounded(json, "n_embd", 65'536, source);
  config.num_layers = bounded(json, "n_layer", 1'000, source);
  config.num_heads = bounded(json, "n_head", 1'024, source);
  const bool has_inner = json.contains("n_inner") && !json["n_inner"].is_null();
  config.intermediate_size = has_inner ? bounded(json, "n_inner", 1'048'576, source) : 4 * config.hidden_size;
  const char* positions = json.contains("n_positions") ? "n_positions" : "n_ctx";
  require(json.contains(positions), ErrorKind::kConfig, "{}: key 'n_positions' is missing", source);
  config.max_positions = bounded(json, positions, 1'048'576, source);
  require(config.hidden_size % config.num_heads == 0, ErrorKind::kConfig,
          "{}: n_embd = {} is not a multiple of n_head = {}", source, config.hidden_size, config.num_heads);
}

}  // namespace

Gpt2Config parse_gpt2_config(const Json& document, const std::string& source) {
  require(document.is_object(), ErrorKind::kConfig, "{}: not an object", source);
  const auto type = get_required<std::string>(document, "model_type", source);
  require(type == "gpt2", ErrorKind::kConfig,
          "{}: model_type '{}' is not supported as a causal language model; supported: gpt2", source, printable(type));
  Gpt2Config config;
  config.document = document;
  refuse_other_attention(document, source);
  constexpr std::array kMapped{MappedKey{"hidden_size", "n_embd"}, MappedKey{"max_position_embeddings", "n_positions"},
                               MappedKey{"num_attention_heads", "n_head"}, MappedKey{"num_hidden_layers", "n_layer"}};
  take_mapped_keys(config.document, kMapped);
  read_dimensions(config, source);
  config.activation = activation(document, "activation_function", "gelu_new", source);
  config.embedding_dropout = probability(document, "embd_pdrop", 0.1, source);
  config.attention_dropout = probability(document, "attn_pdrop", 0.1, source);
  config.residual_dropout = probability(document, "resid_pdrop", 0.1, source);
  config.layer_norm_eps = norm_epsilon(document, "layer_norm_epsilon", 1e-5, source);
  config.initializer_range = initializer_range(document, source);
  config.scale_attention = get_or<bool>(document, "scale_attn_weights", true, source);
  config.tie_word_embeddings = get_or<bool>(document, "tie_word_embeddings", true, source);
  return config;
}

bool is_gpt2(const std::filesystem::path& folder) {
  const Json document = read_json(folder / "config.json", kMaxConfigBytes);
  const auto type = document.find("model_type");
  return type != document.end() && *type == "gpt2";
}

Gpt2Config read_gpt2_config(const std::filesystem::path& folder) {
  return parse_gpt2_config(read_json(folder / "config.json", kMaxConfigBytes), (folder / "config.json").string());
}

std::string to_json_text(const Gpt2Config& config, const std::string& dtype) {
  Json json = config.document;
  json.erase("torch_dtype");
  json["architectures"] = {"GPT2LMHeadModel"};
  json["dtype"] = dtype;
  return json.dump(2) + "\n";
}

}  // namespace strake::models
