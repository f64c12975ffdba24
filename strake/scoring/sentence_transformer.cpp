#include "strake/scoring/sentence_transformer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/json.h"

namespace strake::scoring {
namespace fs = std::filesystem;
namespace {

using inference::Pooling;

// "pooling_mode": "mean", or of older versions "pooling_mode_mean_tokens": true and its like.
Pooling read_pooling(const fs::path& file) {
  const Json json = read_json(file, kMaxConfigBytes);
  const std::string source = file.string();
  require(json.is_object(), ErrorKind::kConfig, "{}: not an object", source);
  std::vector<std::string> modes;
  if (json.contains("pooling_mode")) {
    modes.push_back(get_required<std::string>(json, "pooling_mode", source));
  } else {
    const std::string prefix = "pooling_mode_";
    for (const auto& [key, value] : json.items()) {
      if (!key.starts_with(prefix) || !get_or<bool>(json, key.c_str(), false, source)) continue;
      const std::string mode = key.substr(prefix.size());
      modes.push_back(mode == "mean_tokens" ? "mean" : mode == "cls_token" ? "cls" : mode);
    }
    if (modes.empty()) modes.emplace_back("mean");
  }
  const std::string text = fmt::format("{}", fmt::join(modes, " and "));
  const std::optional<Pooling> pooling = modes.size() == 1 ? parse_pooling(modes.front()) : std::nullopt;
  require(pooling.has_value(), ErrorKind::kConfig,
          "{}: pooling '{}' is not supported; supported: mean, cls. --pooling takes another one", source,
          printable(text));
  return *pooling;
}

// modules.json lists what sentence-transformers runs one after the other, by the names of Python classes.
struct Modules {
  fs::path pooling_file;
  bool normalizes = false;
};

void check_path(const std::string& name, const fs::path& path, const std::string& source) {
  if (name == "Transformer") {
    require(path.empty(), ErrorKind::kConfig, "{}: the encoder is in another folder, '{}'", source,
            printable(path.string()));
  } else if (name == "Pooling") {
    require(path.has_filename() && !path.has_parent_path() && path != "..", ErrorKind::kConfig,
            "{}: the path '{}' is not that of a folder beside it", source, printable(path.string()));
  }
}

Modules read_modules(const fs::path& folder) {
  constexpr std::array<std::string_view, 3> kOrder{"Transformer", "Pooling", "Normalize"};
  const fs::path file = folder / "modules.json";
  const Json json = read_json(file, kMaxConfigBytes);
  const std::string source = file.string();
  require(json.is_array(), ErrorKind::kConfig, "{}: not a list of modules", source);
  Modules modules;
  std::vector<std::string> names;
  for (const Json& module : json) {
    require(module.is_object(), ErrorKind::kConfig, "{}: a module is not an object", source);
    const auto type = get_required<std::string>(module, "type", source);
    names.push_back(type.substr(type.rfind('.') + 1));
    const bool is_known =
        type.starts_with("sentence_transformers.") && std::ranges::find(kOrder, names.back()) != kOrder.end();
    require(is_known, ErrorKind::kConfig, "{}: the module {} is not supported; supported: {}", source, printable(type),
            fmt::join(kOrder, ", "));
    const fs::path path = get_or<std::string>(module, "path", "", source);
    check_path(names.back(), path, source);
    if (names.back() == "Pooling") modules.pooling_file = folder / path / "config.json";
  }
  modules.normalizes = names.size() == kOrder.size();
  const bool is_in_order = std::ranges::equal(names, std::span(kOrder).first(std::min(names.size(), kOrder.size())));
  require(is_in_order && names.size() >= 2, ErrorKind::kConfig,
          "{}: the modules {} are not supported in this order; supported: Transformer, Pooling, and Normalize or not",
          source, printable(fmt::format("{}", fmt::join(names, ", "))));
  return modules;
}

// What sentence-transformers would do to texts before they are tokenized, or to vectors at the end.
void refuse_other_changes(const fs::path& folder) {
  const fs::path file = folder / "config_sentence_transformers.json";
  if (!is_there(file)) return;
  const Json json = read_json(file, kMaxConfigBytes);
  const auto type = get_or<std::string>(json, "model_type", "SentenceTransformer", file.string());
  require(type == "SentenceTransformer", ErrorKind::kConfig,
          "{}: model_type '{}' is not supported; supported: SentenceTransformer", file.string(), printable(type));
  const auto name = get_or<std::string>(json, "default_prompt_name", "", file.string());
  require(name.empty(), ErrorKind::kConfig,
          "{}: default_prompt_name '{}' is not supported: put the prompt into the texts and remove the key",
          file.string(), printable(name));
  const auto dimensions = json.find("truncate_dim");
  require(dimensions == json.end() || dimensions->is_null(), ErrorKind::kConfig,
          "{}: truncate_dim {} is not supported: remove the key, and cut the vectors afterwards", file.string(),
          printable(dimensions == json.end() ? "" : dimensions->dump()));
}

// sentence-transformers takes the first of these that is there.
std::optional<fs::path> find_encoder_settings(const fs::path& folder) {
  for (const char* family : {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
    fs::path file = folder / fmt::format("sentence_{}_config.json", family);
    if (is_there(file)) return file;
  }
  return std::nullopt;
}

int64_t read_max_seq_length(const fs::path& folder) {
  constexpr int64_t kLeftToOthers = std::numeric_limits<int64_t>::max();
  const std::optional<fs::path> file = find_encoder_settings(folder);
  if (!file) return kLeftToOthers;
  const std::string source = file->string();
  const Json json = read_json(*file, kMaxConfigBytes);
  require(json.is_object(), ErrorKind::kConfig, "{}: not an object", source);
  require(!get_or<bool>(json, "do_lower_case", false, source), ErrorKind::kConfig,
          "{}: do_lower_case is not supported: let the tokenizer lowercase", source);
  for (const auto& [key, only] :
       {std::pair{"transformer_task", "feature-extraction"}, std::pair{"module_output_name", "token_embeddings"}}) {
    const auto value = get_or<std::string>(json, key, only, source);
    require(value == only, ErrorKind::kConfig, "{}: {} '{}' is not supported; supported: {}", source, key,
            printable(value), only);
  }
  const auto length = get_or<int64_t>(json, "max_seq_length", kLeftToOthers, source);
  require(length >= 1, ErrorKind::kConfig, "{}: max_seq_length is {}, not a length", source, length);
  return length;
}

}  // namespace

std::optional<Pooling> parse_pooling(const std::string& name) {
  if (name == "mean") return Pooling::kMean;
  if (name == "cls") return Pooling::kFirst;
  return std::nullopt;
}

SentenceTransformer read_sentence_transformer(const fs::path& folder, bool reads_pooling) {
  if (!is_there(folder / "modules.json")) return {};
  const Modules modules = read_modules(folder);
  refuse_other_changes(folder);
  SentenceTransformer model{.pooling = std::nullopt,
                            .normalizes = modules.normalizes,
                            .strips_texts = true,
                            .max_seq_length = read_max_seq_length(folder)};
  if (reads_pooling) model.pooling = read_pooling(modules.pooling_file);
  return model;
}

}  // namespace strake::scoring
