#include "strake/tasks/causal_lm_config.h"
#include "strake/tasks/new_model_config.h"

#include <gtest/gtest.h>

#include "strake/core/test_error.h"

namespace strake::tasks::causal_lm_config_test {
namespace {

TEST(CausalLmConfig, OfAModelTypeIsTransformersDefault) {
  TrainConfig config;
  config.model_type = "gpt2";
  const models::Gpt2Config model = read_causal_lm_config(config);
  EXPECT_EQ(model.vocab_size, 50257);
  EXPECT_EQ(model.hidden_size, 768);
  EXPECT_EQ(model.max_positions, 1024);
  EXPECT_EQ(model.residual_dropout, 0.1);
}

TEST(CausalLmConfig, IsChangedByOverrides) {
  TrainConfig config;
  config.model_type = "gpt2";
  config.config_overrides =
      "n_layer=2,n_embd=32,n_head=4,n_inner=48,resid_pdrop=0,activation_function=relu,tie_word_embeddings=False";
  const models::Gpt2Config model = read_causal_lm_config(config);
  EXPECT_EQ(model.num_layers, 2);
  EXPECT_EQ(model.intermediate_size, 48);
  EXPECT_EQ(model.residual_dropout, 0);
  EXPECT_EQ(model.activation, kernels::Activation::kRelu);
  EXPECT_FALSE(model.tie_word_embeddings);
}

TEST(CausalLmConfig, HasTheSpecialTokensOfTheTokenizer) {
  tokenizers::TokenizerSpec spec;
  for (const char* token : {"<end>", "a", "<begin>"})
    spec.vocabulary.add(token, static_cast<int64_t>(spec.vocabulary.size()), "test");
  spec.model = tokenizers::WordPieceOptions{.unk_token = "a"};
  spec.roles = {{"eos_token", "<end>"}, {"bos_token", "<begin>"}, {"pad_token", "nowhere"}};
  const tokenizers::Tokenizer tokenizer(std::move(spec), {}, std::nullopt);
  TrainConfig config;
  config.model_type = "gpt2";
  config.config_overrides = "vocab_size=3,bos_token_id=1";
  models::Gpt2Config model = read_causal_lm_config(config);
  model.document["pad_token_id"] = 3;
  take_special_ids(model.document, tokenizer, config.config_overrides);
  EXPECT_EQ(model.document["eos_token_id"], 0);
  EXPECT_EQ(model.document["bos_token_id"], 1);
  EXPECT_TRUE(model.document["pad_token_id"].is_null());
}

TEST(CausalLmConfig, RefusesOverridesThatDoNotFit) {
  const std::vector<std::pair<std::string, std::string>> refusals{
      {"n_layers=2", "has no 'n_layers'"},
      {"n_layer", "'n_layer' is not key=value"},
      {"n_layer=2,", "'' is not key=value"},
      {"n_layer=2,n_layer=3", "'n_layer' is given twice"},
      {"n_layer=two", "'n_layer=two' is of another type than 12"},
      {"n_layer=2.5", "'n_layer=2.5' is of another type than 12"},
      {"tie_word_embeddings=1", "is of another type than true"},
      {"activation_function=3", "is of another type than \"gelu_new\""}};
  for (const auto& [overrides, text] : refusals) {
    Json document{{"n_layer", 12}, {"tie_word_embeddings", true}, {"activation_function", "gelu_new"}};
    EXPECT_TRUE(error_of([&] { override_config(document, overrides); }).says(ErrorKind::kUsage, text));
  }
}

}  // namespace
}  // namespace strake::tasks::causal_lm_config_test
