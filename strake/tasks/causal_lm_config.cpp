#include "strake/tasks/causal_lm_config.h"

#include <algorithm>
#include <set>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/nearest_name.h"

namespace strake::tasks {
namespace {

namespace fs = std::filesystem;

// Transformers' GPT2Config(), as far as it says how to compute.
const Json& gpt2_defaults() {
  static const Json kDefaults{{"model_type", "gpt2"},
                              {"vocab_size", 50257},
                              {"n_positions", 1024},
                              {"n_embd", 768},
                              {"n_layer", 12},
                              {"n_head", 12},
                              {"n_inner", nullptr},
                              {"activation_function", "gelu_new"},
                              {"resid_pdrop", 0.1},
                              {"embd_pdrop", 0.1},
                              {"attn_pdrop", 0.1},
                              {"layer_norm_epsilon", 1e-5},
                              {"initializer_range", 0.02},
                              {"scale_attn_weights", true},
                              {"tie_word_embeddings", true},
                              {"bos_token_id", 50256},
                              {"eos_token_id", 50256}};
  return kDefaults;
}

// A number, true, false, or else text.
Json parse_value(const std::string& text) {
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_number() ? value : Json(text);
}

bool has_same_kind(const Json& was, const Json& now) {
  if (was.is_number_integer() || was.is_null()) return now.is_number_integer();
  if (was.is_number()) return now.is_number();
  return was.type() == now.type();
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

void override_config(Json& document, const std::string& overrides) {
  std::set<std::string> given;
  for (const std::string& part : split(overrides, ',')) {
    const size_t equals = part.find('=');
    require(equals != std::string::npos, ErrorKind::kUsage, "--config_overrides: '{}' is not key=value",
            printable(part));
    const std::string key = part.substr(0, equals);
    require(given.insert(key).second, ErrorKind::kUsage, "--config_overrides: '{}' is given twice", printable(key));
    std::vector<std::string> known;
    for (const auto& item : document.items()) known.push_back(item.key());
    require(document.contains(key), ErrorKind::kUsage, "--config_overrides: the configuration has no '{}'{}",
            printable(key), did_you_mean(key, known));
    Json value = parse_value(part.substr(equals + 1));
    require(has_same_kind(document[key], value), ErrorKind::kUsage,
            "--config_overrides: '{}' is of another type than {}", printable(part), document[key].dump());
    document[key] = std::move(value);
  }
}

void take_special_ids(models::Gpt2Config& model, const tokenizers::Tokenizer& tokenizer, const std::string& overrides) {
  const std::vector<std::string> given = split(overrides, ',');
  for (const std::string role : {"bos_token", "eos_token", "pad_token"}) {
    const std::string key = role + "_id";
    if (std::ranges::any_of(given, [&](const std::string& part) { return part.starts_with(key + "="); })) continue;
    const auto found = model.document.find(key);
    const bool is_there = found != model.document.end() && found->is_number_integer();
    if (const std::optional<int32_t> id = tokenizer.id_of_role(role)) {
      model.document[key] = *id;
    } else if (is_there && (*found < 0 || *found >= model.vocab_size)) {
      *found = nullptr;
    }
  }
}

int64_t default_block_size(const models::Gpt2Config& model) { return std::min<int64_t>(model.max_positions, 1024); }

models::Gpt2Config read_causal_lm_config(const TrainConfig& config) {
  if (!config.model_name_or_path.empty()) return models::read_gpt2_config(config.model_name_or_path);
  Json document = gpt2_defaults();
  std::string source = "--model_type gpt2";
  if (!config.config_name.empty()) {
    const fs::path path(config.config_name);
    const fs::path file = fs::is_directory(path) ? path / "config.json" : path;
    document = read_json(file, kMaxConfigBytes);
    source = file.string();
    require(document.is_object(), ErrorKind::kConfig, "{}: not an object", source);
  }
  if (!config.config_overrides.empty()) override_config(document, config.config_overrides);
  return models::parse_gpt2_config(document, source);
}

}  // namespace strake::tasks
