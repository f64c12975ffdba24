#include "strake/models/encoder/config.h"

#include <algorithm>
#include <array>

#include "strake/core/error.h"
#include "strake/core/parse_integer.h"
#include "strake/models/config_values.h"
#include "strake/models/encoder/family.h"

namespace strake::models {
namespace {

void refuse_unsupported(const Json& json, const std::string& source) {
  for (const char* key : {"is_decoder", "add_cross_attention"}) refuse_flag(json, key, source);
  refuse_other_loading(json, source);
  const auto positions = get_or<std::string>(json, "position_embedding_type", "absolute", source);
  require(positions == "absolute", ErrorKind::kConfig, "{}: position_embedding_type '{}' is not supported", source,
          printable(positions));
  require(!json.contains("pruned_heads") || json["pruned_heads"].empty(), ErrorKind::kConfig,
          "{}: pruned_heads are not supported", source);
}

void read_dimensions(EncoderConfig& config, const EncoderFamily& family, const std::string& source) {
  const EncoderKeys& keys = family.keys;
  const Json& json = config.document;
  config.vocab_size = bounded(json, "vocab_size", 10'000'000, source);
  config.hidden_size = bounded(json, keys.hidden_size, 65'536, source);
  config.num_hidden_layers = bounded(json, keys.num_layers, 1'000, source);
  config.num_attention_heads = bounded(json, keys.num_heads, 1'024, source);
  config.intermediate_size = bounded(json, keys.intermediate_size, 1'048'576, source);
  config.max_position_embeddings = bounded(json, "max_position_embeddings", 1'048'576, source);
  require(config.hidden_size % config.num_attention_heads == 0, ErrorKind::kConfig,
          "{}: {} = {} is not a multiple of {} = {}", source, keys.hidden_size, config.hidden_size, keys.num_heads,
          config.num_attention_heads);
  config.pad_token_id = get_or<int64_t>(json, "pad_token_id", family.pad_token_id, source);
  require(config.pad_token_id >= 0 && config.pad_token_id < config.vocab_size, ErrorKind::kConfig,
          "{}: pad_token_id = {} is not in the vocabulary of {}", source, config.pad_token_id, config.vocab_size);
  const bool has_token_types = family.names.token_type_embeddings != nullptr;
  config.type_vocab_size = has_token_types ? bounded(json, "type_vocab_size", 1'000, source) : 0;
  require(config.max_sequence_length() >= 1, ErrorKind::kConfig, "{}: max_position_embeddings = {} leaves no position",
          source, config.max_position_embeddings);
}

void read_regularisation(EncoderConfig& config, const EncoderFamily& family, const std::string& source) {
  const Json& json = config.document;
  const EncoderKeys& keys = family.keys;
  config.hidden_act = activation(json, keys.activation, "gelu", source);
  config.hidden_dropout = probability(json, keys.dropout, 0.1, source);
  config.attention_output_dropout = family.drops_attention_output ? config.hidden_dropout : 0.0;
  config.attention_dropout = probability(json, keys.attention_dropout, 0.1, source);
  config.classifier_dropout =
      probability(json, keys.classifier_dropout, family.classifier_dropout.value_or(config.hidden_dropout), source);
  if (keys.span_dropout != nullptr) config.span_dropout = probability(json, keys.span_dropout, 0.1, source);
  if (keys.layer_norm_eps != nullptr) config.layer_norm_eps = norm_epsilon(json, keys.layer_norm_eps, 1e-12, source);
  config.initializer_range = initializer_range(json, source);
  config.tie_word_embeddings = get_or<bool>(json, "tie_word_embeddings", true, source);
}

std::optional<ProblemType> parse_problem_type(const std::string& name, const std::string& source) {
  const std::optional<ProblemType> type = find_problem_type(name);
  require(name.empty() || type.has_value(), ErrorKind::kConfig, "{}: problem_type '{}' is not one of {}", source,
          printable(name), kProblemTypeNames);
  return type;
}

// id2label keys are "0", "1", ...: all of them, each once.
std::vector<std::string> read_labels(const Json& json, const std::string& source) {
  constexpr size_t kMostLabels = 1'000'000;
  if (!json.contains("id2label") || json["id2label"].is_null()) {
    const auto count = get_or<int64_t>(json, "num_labels", 2, source);
    require(count >= 1 && count <= static_cast<int64_t>(kMostLabels), ErrorKind::kConfig,
            "{}: num_labels = {} makes no sense", source, count);
    std::vector<std::string> names;
    for (int64_t i = 0; i < count; ++i) names.push_back(fmt::format("LABEL_{}", i));
    return names;
  }
  const Json& map = json["id2label"];
  require(map.is_object() && !map.empty() && map.size() <= kMostLabels, ErrorKind::kConfig,
          "{}: id2label is not an object of labels", source);
  std::vector<std::optional<std::string>> slots(map.size());
  for (const auto& [key, value] : map.items()) {
    const size_t id = parse_integer<size_t>(key).value_or(slots.size());
    if (!value.is_string() && !value.is_number_integer()) {
      fail(ErrorKind::kConfig, "{}: id2label entry '{}' is {}, not a string", source, printable(key),
           printable(value.dump()));
    }
    if (id >= slots.size() || slots[id].has_value()) {
      fail(ErrorKind::kConfig, "{}: id2label entry '{}' does not number {} labels from 0", source, printable(key),
           slots.size());
    }
    slots[id] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  std::vector<std::string> names;
  for (auto& slot : slots) names.push_back(std::move(*slot));
  return names;
}

}  // namespace

const char* to_string(ProblemType type) {
  switch (type) {
    case ProblemType::kSingleLabelClassification:
      return "single_label_classification";
    case ProblemType::kRegression:
      return "regression";
    case ProblemType::kMultiLabelClassification:
      return "multi_label_classification";
  }
  return "";
}

std::optional<ProblemType> find_problem_type(std::string_view name) {
  constexpr std::array kKnown{ProblemType::kSingleLabelClassification, ProblemType::kRegression,
                              ProblemType::kMultiLabelClassification};
  const auto* const found = std::ranges::find_if(kKnown, [&](ProblemType known) { return name == to_string(known); });
  return found == kKnown.end() ? std::nullopt : std::optional(*found);
}

ProblemType EncoderConfig::problem() const {
  if (problem_type) return *problem_type;
  return num_labels() == 1 ? ProblemType::kRegression : ProblemType::kSingleLabelClassification;
}

int64_t EncoderConfig::max_sequence_length() const {
  const bool follows_padding = find_family(model_type, "config.json").positions_follow_padding;
  return follows_padding ? max_position_embeddings - pad_token_id - 1 : max_position_embeddings;
}

void EncoderConfig::set_labels(std::vector<std::string> names, std::optional<ProblemType> type) {
  labels = std::move(names);
  problem_type = type;
}

EncoderConfig read_encoder_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  return parse_encoder_config(read_json(file, kMaxConfigBytes), file.string());
}

EncoderConfig parse_encoder_config(const Json& document, const std::string& source) {
  EncoderConfig config;
  config.document = document;
  require(config.document.is_object(), ErrorKind::kConfig, "{}: not an object", source);
  config.model_type = get_required<std::string>(config.document, "model_type", source);
  const EncoderFamily& family = find_family(config.model_type, source);
  refuse_unsupported(config.document, source);
  constexpr EncoderKeys kUsual;  // Transformers maps these to a family's own
  take_mapped_keys(config.document, std::array{MappedKey{kUsual.hidden_size, family.keys.hidden_size},
                                               MappedKey{kUsual.num_layers, family.keys.num_layers},
                                               MappedKey{kUsual.num_heads, family.keys.num_heads}});
  read_dimensions(config, family, source);
  read_regularisation(config, family, source);
  config.labels = read_labels(config.document, source);
  config.problem_type = parse_problem_type(get_or<std::string>(config.document, "problem_type", "", source), source);
  return config;
}

std::string to_json_text(const EncoderConfig& config, const std::string& dtype) {
  Json json = config.document;
  json.erase("num_labels");
  json.erase("torch_dtype");
  json["architectures"] = {find_family(config.model_type, "config.json").architecture};
  json["dtype"] = dtype;
  Json id2label = Json::object();
  Json label2id = Json::object();
  for (int64_t i = 0; i < config.num_labels(); ++i) {
    id2label[std::to_string(i)] = config.labels[i];
    label2id[config.labels[i]] = i;
  }
  json["id2label"] = id2label;
  json["label2id"] = label2id;
  json["problem_type"] = to_string(config.problem());
  return json.dump(2) + "\n";
}

}  // namespace strake::models
