#include "strake/models/encoder/family.h"

#include <algorithm>
#include <array>

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

}  // namespace strake::models
