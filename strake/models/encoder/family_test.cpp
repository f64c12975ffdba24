#include "strake/models/encoder/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "strake/models/encoder/masked_language_model.h"
#include "strake/models/encoder/question_answerer.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/encoder/token_classifier.h"
#include "strake/models/test_model.h"

namespace strake::models::family_test {
namespace {

EncoderConfig config_of(const EncoderFamily& family, bool tied) {
  Json json = family.defaults();
  json["tie_word_embeddings"] = tied;
  return parse_encoder_config(json, "test");
}

std::vector<std::unique_ptr<Model>> models_of(const EncoderConfig& config) {
  std::vector<std::unique_ptr<Model>> models;
  models.push_back(std::make_unique<SequenceClassifier>(config));
  models.push_back(std::make_unique<TokenClassifier>(config));
  models.push_back(std::make_unique<QuestionAnswerer>(config));
  models.push_back(std::make_unique<MaskedLanguageModel>(config, TokenMasking{}));
  return models;
}

std::vector<ParameterSpec> all_parameters(const Model& model) {
  std::vector<ParameterSpec> all;
  for (const auto& block : model.blocks()) {
    for (const ParameterSpec& parameter : block->parameters()) all.push_back(parameter);
  }
  return all;
}

bool is_of_head(const EncoderFamily& family, const EncoderConfig& config, std::string_view name) {
  const std::string_view prefix = family.names.prefix;
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return std::ranges::any_of(head_prefixes(family, config),
                             [&](const std::string& head) { return name.starts_with(head); });
}

void expect_known(const EncoderFamily& family, const EncoderConfig& config, const ParameterSpec& parameter) {
  for (const std::string& name : parameter.checkpoint_names) {
    EXPECT_EQ(is_of_head(family, config, name), parameter.is_head) << family.model_type << ": " << name;
  }
  const std::string& copy = parameter.checkpoint_copy;  // of tied weights: where the head has them
  EXPECT_TRUE(copy.empty() || is_of_head(family, config, copy)) << family.model_type << ": " << copy;
}

TEST(EncoderFamily, KnowsTheHeadsOfAllItsTasksAndTakesNoLayerForOne) {
  for (const EncoderFamily& family : encoder_families()) {
    for (const bool tied : {true, false}) {
      const EncoderConfig config = config_of(family, tied);
      for (const auto& model : models_of(config)) {
        const auto parameters = all_parameters(*model);
        for (const ParameterSpec& parameter : parameters) expect_known(family, config, parameter);
        EXPECT_TRUE(std::ranges::any_of(parameters, &ParameterSpec::is_head)) << family.model_type;
      }
    }
  }
}

TEST(EncoderFamily, KnowsTheHeadsThatANewOneNames) {
  EncoderFamily family = find_family("bert", "test");
  family.masked_head.dense = "generator.dense";
  family.masked_head.norm = "generator_norm";
  family.masked_head.decoder = "words";
  const EncoderConfig config = config_of(family, true);
  for (const char* name : {"generator.dense.weight", "generator_norm.bias", "words.weight", "bert.pooler.dense.bias",
                           "cls.seq_relationship.weight", "qa_outputs.bias", "classifier.weight"}) {
    EXPECT_TRUE(is_of_head(family, config, name)) << name;
  }
  for (const char* name : {"bert.encoder.layer.1.output.dense.bias", "lm_head.bias", "generators.dense.weight"}) {
    EXPECT_FALSE(is_of_head(family, config, name)) << name;
  }
}

}  // namespace
}  // namespace strake::models::family_test
