#include "strake/models/bert/bert.h"

#include "strake/models/encoder/classification_head.h"

namespace strake::models {
namespace {

std::unique_ptr<Block> bert_head(const EncoderConfig& config, uint32_t first_site) {
  return std::make_unique<ClassificationHeadBlock>(
      config,
      ClassificationHeadBlock::Design{.dense = "bert.pooler.dense",
                                      .classifier = "classifier",
                                      .activation = kernels::Activation::kTanh,
                                      .dropout_before_dense = false},
      first_site);
}

}  // namespace

EncoderNames bert_names(const char* prefix) {
  return {.prefix = prefix,
          .word_embeddings = "embeddings.word_embeddings",
          .position_embeddings = "embeddings.position_embeddings",
          .token_type_embeddings = "embeddings.token_type_embeddings",
          .embeddings_norm = "embeddings.LayerNorm",
          .query = "encoder.layer.{}.attention.self.query",
          .key = "encoder.layer.{}.attention.self.key",
          .value = "encoder.layer.{}.attention.self.value",
          .attention_output = "encoder.layer.{}.attention.output.dense",
          .attention_norm = "encoder.layer.{}.attention.output.LayerNorm",
          .intermediate = "encoder.layer.{}.intermediate.dense",
          .output = "encoder.layer.{}.output.dense",
          .output_norm = "encoder.layer.{}.output.LayerNorm"};
}

Json bert_defaults() {
  return {{"model_type", "bert"},           {"vocab_size", 30522},        {"hidden_size", 768},
          {"num_hidden_layers", 12},        {"num_attention_heads", 12},  {"intermediate_size", 3072},
          {"hidden_act", "gelu"},           {"hidden_dropout_prob", 0.1}, {"attention_probs_dropout_prob", 0.1},
          {"max_position_embeddings", 512}, {"type_vocab_size", 2},       {"initializer_range", 0.02},
          {"layer_norm_eps", 1e-12},        {"pad_token_id", 0},          {"tie_word_embeddings", true}};
}

EncoderFamily bert_family() {
  return {.model_type = "bert",
          .defaults = &bert_defaults,
          .architecture = "BertForSequenceClassification",
          .token_architecture = "BertForTokenClassification",
          .span_architecture = "BertForQuestionAnswering",
          .names = bert_names("bert."),
          .classification_head = &bert_head,
          .masked_head = {.architecture = "BertForMaskedLM",
                          .dense = "cls.predictions.transform.dense",
                          .norm = "cls.predictions.transform.LayerNorm",
                          .decoder = "cls.predictions.decoder",
                          .bias = "cls.predictions.bias",
                          .untied_bias = "cls.predictions.decoder.bias",
                          .activation = std::nullopt}};
}

}  // namespace strake::models
