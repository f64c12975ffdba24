#include "strake/models/gpt2/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strake/models/gpt2/test_config.h"
#include "strake/models/test_model.h"

namespace strake::models::gpt2_config_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Refusal {
  Json changes;
  std::string text;
};

TEST(Gpt2Config, RefusesWhatItCannotComputeByName) {
  const std::vector<Refusal> refusals{
      {{{"model_type", nullptr}}, "key 'model_type' is missing"},
      {{{"model_type", "llama"}}, "model_type 'llama' is not supported as a causal language model; supported: gpt2"},
      {{{"add_cross_attention", true}}, "add_cross_attention = true is not supported"},
      {{{"scale_attn_by_inverse_layer_idx", true}}, "scale_attn_by_inverse_layer_idx = true is not supported"},
      {{{"reorder_and_upcast_attn", true}}, "reorder_and_upcast_attn = true is not supported"},
      {{{"auto_map", Json::object()}}, "auto_map asks for the model's own Python code, which is never run"},
      {{{"quantization_config", {{"load_in_8bit", true}}}}, "quantization_config is not supported: remove it"},
      {{{"pruned_heads", {{"0", {1}}}}}, "pruned_heads are not supported"},
      {{{"activation_function", "mish"}}, "activation 'mish' is not supported; supported: gelu,"}};
  for (const auto& [changes, text] : refusals) {
    const std::string error = error_text([&] { small_gpt2_config(changes); });
    EXPECT_THAT(error, HasSubstr(text));
    EXPECT_THAT(error, StartsWith("configuration: config.json: ")) << text;
  }
}

TEST(Gpt2Config, RefusesValuesOutOfRange) {
  const std::vector<Refusal> refusals{
      {{{"vocab_size", nullptr}}, "key 'vocab_size' is missing"},
      {{{"vocab_size", 10'000'001}}, "vocab_size = 10000001 is not in [1, 10000000]"},
      {{{"n_embd", 0}}, "n_embd = 0 is not in"},
      {{{"n_embd", 9}}, "n_embd = 9 is not a multiple of n_head = 2"},
      {{{"n_layer", 1001}}, "n_layer = 1001 is not in"},
      {{{"n_head", "2"}}, "key 'n_head' has the unexpected value \"2\""},
      {{{"n_inner", -1}}, "n_inner = -1 is not in"},
      {{{"n_positions", nullptr}}, "key 'n_positions' is missing"},
      {{{"n_positions", 0}}, "n_positions = 0 is not in"},
      {{{"resid_pdrop", 1}}, "resid_pdrop = 1 is not in [0, 1)"},
      {{{"embd_pdrop", -0.1}}, "embd_pdrop = -0.1 is not in [0, 1)"},
      {{{"attn_pdrop", 2}}, "attn_pdrop = 2 is not in [0, 1)"},
      {{{"layer_norm_epsilon", 0}}, "layer_norm_epsilon = 0 is not in (0, 1)"},
      {{{"initializer_range", -1}}, "initializer_range = -1 makes no sense"},
      {{{"tie_word_embeddings", 1}}, "key 'tie_word_embeddings' has the unexpected value 1"}};
  for (const auto& [changes, text] : refusals) {
    EXPECT_THAT(error_text([&] { small_gpt2_config(changes); }), HasSubstr(text));
  }
}

TEST(Gpt2Config, PrefersTheNamesThatTransformersMaps) {
  const Gpt2Config config = small_gpt2_config({{"num_attention_heads", 4}, {"max_position_embeddings", 17}});
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.max_positions, 17);
  EXPECT_FALSE(config.document.contains("num_attention_heads")) << "or a saved model would have two numbers";
  EXPECT_EQ(config.document["n_head"], 4);
}

TEST(Gpt2Config, HasTransformersDefaults) {
  const Gpt2Config config = small_gpt2_config({{"n_inner", nullptr}});
  EXPECT_EQ(config.intermediate_size, 32);
  EXPECT_EQ(config.activation, kernels::Activation::kGeluTanh);
  EXPECT_EQ(config.residual_dropout, 0.1);
  EXPECT_EQ(config.layer_norm_eps, 1e-5);
  EXPECT_TRUE(config.scale_attention);
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST(Gpt2Config, OfOldFilesHasItsPositionsFromNCtx) {
  EXPECT_EQ(small_gpt2_config({{"n_positions", nullptr}, {"n_ctx", 7}}).max_positions, 7);
  EXPECT_EQ(small_gpt2_config({{"n_ctx", 7}}).max_positions, 10);
}

TEST(Gpt2Config, IsWrittenBackWithWhatItDoesNotKnow) {
  const ModelFolder folder(small_gpt2_document({{"bos_token_id", 3}, {"torch_dtype", "float16"}}));
  const Json written = Json::parse(to_json_text(read_gpt2_config(folder.path()), "float32"));
  EXPECT_EQ(written["bos_token_id"], 3);
  EXPECT_EQ(written["architectures"], Json({"GPT2LMHeadModel"}));
  EXPECT_EQ(written["dtype"], "float32");
  EXPECT_FALSE(written.contains("torch_dtype"));
}

}  // namespace
}  // namespace strake::models::gpt2_config_test
