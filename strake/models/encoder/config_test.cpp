#include "strake/models/encoder/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strake/models/test_model.h"

namespace strake::models::config_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

EncoderConfig read(const Json& changes) {
  const ModelFolder folder(small_config(changes));
  return read_encoder_config(folder.path());
}

Json distilbert(const Json& changes = Json::object()) {
  Json config{{"model_type", "distilbert"}, {"dim", 8}, {"n_layers", 1}, {"n_heads", 2}, {"hidden_dim", 12}};
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads"}) config[key] = nullptr;
  config.update(changes);
  return config;
}

struct Refusal {
  Json changes;
  std::string text;
};

TEST(EncoderConfig, NoCodeOfItsOwnMayBeWrittenAsNull) {
  EXPECT_EQ(error_text([] { read({{"auto_map", nullptr}, {"quantization_config", nullptr}}); }), "no error");
}

TEST(EncoderConfig, RefusesWhatItCannotComputeByName) {
  const std::vector<Refusal> refusals{
      {{{"model_type", nullptr}}, "key 'model_type' is missing"},
      {{{"model_type", "t5"}}, "model_type 't5' is not supported; supported: bert, roberta, distilbert"},
      {{{"model_type", "gpt2"}}, "gpt2 is a causal language model, not an encoder: strake train, evaluate and predict"},
      {{{"model_type", 3}}, "key 'model_type' has the unexpected value 3"},
      {{{"is_decoder", true}}, "is_decoder = true is not supported"},
      {{{"add_cross_attention", true}}, "add_cross_attention = true is not supported"},
      {{{"auto_map", Json::object()}}, "auto_map asks for the model's own Python code, which is never run"},
      {{{"quantization_config", {{"load_in_8bit", true}}}}, "quantization_config is not supported: remove it"},
      {{{"position_embedding_type", "relative_key"}}, "position_embedding_type 'relative_key' is not supported"},
      {{{"pruned_heads", {{"0", {1}}}}}, "pruned_heads are not supported"},
      {{{"hidden_act", "mish"}}, "activation 'mish' is not supported; supported: gelu,"},
      {{{"problem_type", "ranking"}}, "problem_type 'ranking' is not one of single_label_classification"}};
  for (const auto& [changes, text] : refusals) {
    const std::string error = error_text([&] { read(changes); });
    EXPECT_THAT(error, HasSubstr(text));
    EXPECT_THAT(error, StartsWith("configuration: ")) << text;
    EXPECT_THAT(error, HasSubstr("config.json")) << text;
  }
}

TEST(EncoderConfig, KnowsGeluByAllItsNames) {
  for (const char* name : {"gelu", "gelu_python"}) {
    EXPECT_EQ(read({{"hidden_act", name}}).hidden_act, kernels::Activation::kGelu) << name;
  }
  for (const char* name : {"gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"}) {
    EXPECT_EQ(read({{"hidden_act", name}}).hidden_act, kernels::Activation::kGeluTanh) << name;
  }
}

TEST(EncoderConfig, PositionsThatBeganAsSinesAreAsAnyOthers) {
  EXPECT_NO_THROW(read(distilbert({{"sinusoidal_pos_embds", true}})));
}

TEST(EncoderConfig, RefusesValuesOutOfRange) {
  const std::vector<Refusal> refusals{
      {{{"vocab_size", nullptr}}, "key 'vocab_size' is missing"},
      {{{"vocab_size", 0}}, "vocab_size = 0 is not in [1, 10000000]"},
      {{{"vocab_size", 10'000'001}}, "vocab_size = 10000001 is not in"},
      {{{"vocab_size", "11"}}, "key 'vocab_size' has the unexpected value \"11\""},
      {{{"hidden_size", 65'537}}, "hidden_size = 65537 is not in"},
      {{{"hidden_size", 9}}, "hidden_size = 9 is not a multiple of num_attention_heads = 2"},
      {distilbert({{"dim", 9}}), "dim = 9 is not a multiple of n_heads = 2"},
      {{{"num_hidden_layers", 1001}}, "num_hidden_layers = 1001 is not in"},
      {{{"num_attention_heads", 1025}}, "num_attention_heads = 1025 is not in"},
      {{{"intermediate_size", 1'048'577}}, "intermediate_size = 1048577 is not in"},
      {{{"max_position_embeddings", -1}}, "max_position_embeddings = -1 is not in"},
      {{{"type_vocab_size", 1001}}, "type_vocab_size = 1001 is not in"},
      {{{"pad_token_id", 11}}, "pad_token_id = 11 is not in the vocabulary of 11"},
      {{{"pad_token_id", -1}}, "pad_token_id = -1 is not in the vocabulary"},
      {{{"model_type", "roberta"}, {"pad_token_id", 9}}, "max_position_embeddings = 10 leaves no position"},
      {{{"hidden_dropout_prob", 1.0}}, "hidden_dropout_prob = 1 is not in [0, 1)"},
      {{{"attention_probs_dropout_prob", -0.1}}, "attention_probs_dropout_prob = -0.1 is not in [0, 1)"},
      {{{"classifier_dropout", 2}}, "classifier_dropout = 2 is not in [0, 1)"},
      {distilbert({{"seq_classif_dropout", 2}}), "seq_classif_dropout = 2 is not in [0, 1)"},
      {{{"layer_norm_eps", 0}}, "layer_norm_eps = 0 is not in (0, 1)"},
      {{{"initializer_range", -1}}, "initializer_range = -1 makes no sense"},
      {{{"num_labels", 0}}, "num_labels = 0 makes no sense"}};
  for (const auto& [changes, text] : refusals) EXPECT_THAT(error_text([&] { read(changes); }), HasSubstr(text));
}

TEST(EncoderConfig, RefusesAFileThatIsNoObject) {
  const ModelFolder folder;
  folder.write("config.json", "[1]");
  EXPECT_THAT(error_text([&] { read_encoder_config(folder.path()); }), HasSubstr("not an object"));
}

TEST(EncoderConfig, FillsInTheDefaultsOfEachFamily) {
  const EncoderConfig bert = read(Json::object());
  EXPECT_EQ(bert.hidden_dropout, 0.1);
  EXPECT_EQ(bert.attention_output_dropout, 0.1);
  EXPECT_EQ(bert.classifier_dropout, 0.1);
  EXPECT_EQ(bert.layer_norm_eps, 1e-12);
  EXPECT_EQ(bert.pad_token_id, 0);
  EXPECT_EQ(bert.max_sequence_length(), 10);
  const EncoderConfig roberta = read({{"model_type", "roberta"}});
  EXPECT_EQ(roberta.pad_token_id, 1);
  EXPECT_EQ(roberta.max_sequence_length(), 8) << "positions count from pad_token_id + 1";
  const EncoderConfig small = read(distilbert());
  EXPECT_EQ(small.classifier_dropout, 0.2);
  EXPECT_EQ(small.attention_output_dropout, 0) << "DistilBERT has none after the attention's output";
  EXPECT_EQ(small.type_vocab_size, 0);
}

TEST(EncoderConfig, PrefersTheNamesThatTransformersMaps) {
  const EncoderConfig config = read(distilbert({{"hidden_size", 16}, {"num_attention_heads", 4}}));
  EXPECT_EQ(config.hidden_size, 16);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.num_hidden_layers, 1);
  EXPECT_EQ(config.document["dim"], 16);
  EXPECT_FALSE(config.document.contains("hidden_size")) << "or a saved model would have two numbers";
}

TEST(EncoderConfig, ReadsLabelsInOrderOfTheirIds) {
  const EncoderConfig config = read({{"id2label",
                                      {{"10", "k"},
                                       {"2", "c"},
                                       {"0", "a"},
                                       {"1", "b"},
                                       {"3", "d"},
                                       {"4", "e"},
                                       {"5", "f"},
                                       {"6", "g"},
                                       {"7", "h"},
                                       {"8", "i"},
                                       {"9", "j"}}}});
  EXPECT_THAT(config.labels, testing::ElementsAre("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"));
  EXPECT_THAT(read({{"id2label", {{"0", 0}, {"1", 1}}}}).labels, testing::ElementsAre("0", "1"));
  EXPECT_THAT(read({{"num_labels", 3}}).labels, testing::ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
  EXPECT_EQ(read(Json::object()).num_labels(), 2);
}

TEST(EncoderConfig, RefusesLabelsThatAreNotNumberedFromZero) {
  for (const Json& labels : {Json{{"1", "a"}}, Json{{"0", "a"}, {"2", "c"}}, Json{{"0", "a"}, {"00", "b"}},
                             Json{{"0", "a"}, {"-1", "b"}}, Json{{"0x0", "a"}}, Json{{"", "a"}}}) {
    EXPECT_THAT(error_text([&] { read({{"id2label", labels}}); }), HasSubstr("does not number")) << labels;
  }
  EXPECT_THAT(error_text([&] { read({{"id2label", {{"0", 1.5}}}}); }), HasSubstr("entry '0' is 1.5, not a string"));
  EXPECT_THAT(error_text([&] { read({{"id2label", Json::array({"a"})}}); }), HasSubstr("not an object of labels"));
  EXPECT_THAT(error_text([&] { read({{"id2label", Json::object()}}); }), HasSubstr("not an object of labels"));
}

TEST(EncoderConfig, InfersTheProblemAsTransformersDoes) {
  EXPECT_EQ(read({{"num_labels", 1}}).problem(), ProblemType::kRegression);
  EXPECT_EQ(read({{"num_labels", 2}}).problem(), ProblemType::kSingleLabelClassification);
  EXPECT_EQ(read({{"num_labels", 1}, {"problem_type", "single_label_classification"}}).problem(),
            ProblemType::kSingleLabelClassification);
}

TEST(EncoderConfig, WritesTheFileBackWithNewLabels) {
  EncoderConfig config = read({{"torch_dtype", "float16"}, {"num_labels", 7}, {"unknown_key", {1, 2}}});
  config.set_labels({"no", "yes"}, std::nullopt);
  const Json written = Json::parse(to_json_text(config, "float32"));
  EXPECT_EQ(written["architectures"], Json({"BertForSequenceClassification"}));
  EXPECT_EQ(written["id2label"], Json({{"0", "no"}, {"1", "yes"}}));
  EXPECT_EQ(written["label2id"], Json({{"no", 0}, {"yes", 1}}));
  EXPECT_EQ(written["problem_type"], "single_label_classification");
  EXPECT_EQ(written["dtype"], "float32");
  EXPECT_EQ(written["unknown_key"], Json({1, 2}));
  EXPECT_FALSE(written.contains("torch_dtype"));
  EXPECT_FALSE(written.contains("num_labels"));
}

}  // namespace
}  // namespace strake::models::config_test
