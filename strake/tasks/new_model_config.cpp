#include "strake/tasks/new_model_config.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/nearest_name.h"

namespace strake::tasks {
namespace {

namespace fs = std::filesystem;

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

void require_vocabulary_of(const tokenizers::Tokenizer& tokenizer, int64_t vocab_size, const TrainConfig& config) {
  const int64_t num_tokens = tokenizer.vocab_size();
  if (num_tokens <= vocab_size) return;
  require(!config.model_name_or_path.empty(), ErrorKind::kConfig,
          "the new model's vocab_size {} is less than the {} tokens of {}: --config_overrides vocab_size={} or more",
          vocab_size, num_tokens, config.tokenizer_name, num_tokens);
  log::warning(
      "{} has embeddings for {} tokens, and its tokenizer {} different ones: texts with the others are refused",
      config.model_name_or_path, vocab_size, num_tokens);
}

void take_special_ids(Json& document, const tokenizers::Tokenizer& tokenizer, const std::string& overrides) {
  const std::vector<std::string> given = split(overrides, ',');
  const auto words = document.find("vocab_size");
  const Json vocab_size = words != document.end() && words->is_number_integer() ? *words : Json(0);
  for (const std::string role : {"bos_token", "eos_token", "pad_token"}) {
    const std::string key = role + "_id";
    if (std::ranges::any_of(given, [&](const std::string& part) { return part.starts_with(key + "="); })) continue;
    const auto found = document.find(key);
    const bool is_there = found != document.end() && found->is_number_integer();
    if (const std::optional<int32_t> id = tokenizer.id_of_role(role)) {
      document[key] = *id;
    } else if (is_there && (*found < 0 || *found >= vocab_size)) {
      *found = nullptr;
    }
  }
}

NewModelConfig new_model_config(const TrainConfig& config, const Json& defaults) {
  NewModelConfig model{.document = defaults, .source = "--model_type " + config.model_type};
  if (!config.config_name.empty()) {
    const fs::path path(config.config_name);
    std::error_code unknown;
    const fs::path file = fs::is_directory(path, unknown) ? path / "config.json" : path;
    require(!unknown || unknown == std::errc::no_such_file_or_directory, ErrorKind::kIo, "--config_name {}: {}",
            printable(config.config_name), unknown.message());
    model = {.document = read_json(file, kMaxConfigBytes), .source = file.string()};
    require(model.document.is_object(), ErrorKind::kConfig, "{}: not an object", model.source);
  }
  if (!config.config_overrides.empty()) override_config(model.document, config.config_overrides);
  return model;
}

}  // namespace strake::tasks
