#pragma once

#include "strake/models/gpt2/config.h"

// For tests of GPT-2.
namespace strake::models {

// config.json of a small GPT-2; `changes` replace or add keys, null ones remove them.
inline Json small_gpt2_document(const Json& changes = Json::object()) {
  Json document{{"model_type", "gpt2"}, {"vocab_size", 11}, {"n_embd", 8},
                {"n_layer", 2},         {"n_head", 2},      {"n_positions", 10}};
  document.update(changes);
  for (const auto& [key, value] : changes.items()) {
    if (value.is_null()) document.erase(key);
  }
  return document;
}

inline Gpt2Config small_gpt2_config(const Json& changes = Json::object()) {
  return parse_gpt2_config(small_gpt2_document(changes), "config.json");
}

}  // namespace strake::models
