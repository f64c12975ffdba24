#include "strake/models/distilbert/distilbert.h"

#include "strake/models/encoder/classification_head.h"

namespace strake::models {
namespace {

constexpr EncoderNames kNames{.prefix = "distilbert.",
                              .word_embeddings = "embeddings.word_embeddings",
                              .position_embeddings = "embeddings.position_embeddings",
                              .token_type_embeddings = nullptr,
                              .embeddings_norm = "embeddings.LayerNorm",
                              .query = "transformer.layer.{}.attention.q_lin",
                              .key = "transformer.layer.{}.attention.k_lin",
                              .value = "transformer.layer.{}.attention.v_lin",
                              .attention_output = "transformer.layer.{}.attention.out_lin",
                              .attention_norm = "transformer.layer.{}.sa_layer_norm",
                              .intermediate = "transformer.layer.{}.ffn.lin1",
                              .output = "transformer.layer.{}.ffn.lin2",
                              .output_norm = "transformer.layer.{}.output_layer_norm"};

constexpr EncoderKeys kKeys{.hidden_size = "dim",
                            .num_layers = "n_layers",
                            .num_heads = "n_heads",
                            .intermediate_size = "hidden_dim",
                            .activation = "activation",
                            .dropout = "dropout",
                            .attention_dropout = "attention_dropout",
                            .classifier_dropout = "seq_classif_dropout",
                            .span_dropout = "qa_dropout",
                            .layer_norm_eps = nullptr};

std::unique_ptr<Block> distilbert_head(const EncoderConfig& config, uint32_t first_site) {
  return std::make_unique<ClassificationHeadBlock>(
      config,
      ClassificationHeadBlock::Design{.dense = "pre_classifier",
                                      .classifier = "classifier",
                                      .activation = kernels::Activation::kRelu,
                                      .dropout_before_dense = false},
      first_site);
}

Json distilbert_defaults() {
  return {{"model_type", "distilbert"},
          {"vocab_size", 30522},
          {"max_position_embeddings", 512},
          {"n_layers", 6},
          {"n_heads", 12},
          {"dim", 768},
          {"hidden_dim", 3072},
          {"dropout", 0.1},
          {"attention_dropout", 0.1},
          {"activation", "gelu"},
          {"initializer_range", 0.02},
          {"sinusoidal_pos_embds", false},
          {"pad_token_id", 0},
          {"tie_word_embeddings", true},
          {"seq_classif_dropout", 0.2}};
}

}  // namespace

EncoderFamily distilbert_family() {
  return {.model_type = "distilbert",
          .defaults = &distilbert_defaults,
          .architecture = "DistilBertForSequenceClassification",
          .token_architecture = "DistilBertForTokenClassification",
          .span_architecture = "DistilBertForQuestionAnswering",
          .names = kNames,
          .classification_head = &distilbert_head,
          .masked_head = {.architecture = "DistilBertForMaskedLM",
                          .dense = "vocab_transform",
                          .norm = "vocab_layer_norm",
                          .decoder = "vocab_projector",
                          .bias = "vocab_projector.bias",
                          .untied_bias = nullptr,
                          .activation = std::nullopt},
          .keys = kKeys,
          .drops_attention_output = false,
          .classifier_dropout = 0.2,
          // Transformers has one more dropout for classifiers of texts, and not of tokens.
          .token_dropout = &EncoderConfig::hidden_dropout};
}

}  // namespace strake::models
