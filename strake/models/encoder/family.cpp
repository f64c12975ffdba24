#include "strake/models/encoder/family.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "strake/core/error.h"
#include "strake/models/bert/bert.h"
#include "strake/models/distilbert/distilbert.h"
#include "strake/models/roberta/roberta.h"

namespace strake::models {

std::span<const EncoderFamily> encoder_families() {
  static const std::array kFamilies{bert_family(), roberta_family(), distilbert_family()};
  return kFamilies;
}

const EncoderFamily& find_family(const std::string& model_type, const std::string& source) {
  const auto families = encoder_families();
  const auto found = std::ranges::find(families, model_type, &EncoderFamily::model_type);
  if (found != families.end()) return *found;
  require(model_type != "gpt2", ErrorKind::kConfig,
          "{}: gpt2 is a causal language model, not an encoder: strake train, evaluate and predict take it as --task "
          "causal-lm",
          source);
  std::string known;
  for (const EncoderFamily& family : families) known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  fail(ErrorKind::kConfig, "{}: model_type '{}' is not supported; supported: {}", source, printable(model_type), known);
}

std::vector<std::string> head_prefixes(const EncoderFamily& family, const EncoderConfig& config) {
  // Transformers' names in every family. Its base models have a pooler that not every classifier computes with.
  std::vector<std::string> prefixes{"classifier.", "pooler.", "qa_outputs."};
  const auto add = [&](std::string_view layer) {
    const std::string_view prefix = family.names.prefix;
    if (layer.starts_with(prefix)) layer.remove_prefix(prefix.size());
    // What a head has beside it has its first name, too: the next sentence's in "cls.", for example.
    prefixes.push_back(std::string(layer.substr(0, layer.find('.'))) + ".");
  };
  const MaskedHeadDesign& masked = family.masked_head;
  for (const char* layer : {masked.dense, masked.norm, masked.decoder, masked.bias}) add(layer);
  if (masked.untied_bias != nullptr) add(masked.untied_bias);
  const std::unique_ptr<Block> classifier = family.classification_head(config, 0);
  for (const ParameterSpec& parameter : classifier->parameters()) {
    for (const std::string& name : parameter.checkpoint_names) add(name);
  }
  return prefixes;
}

}  // namespace strake::models
