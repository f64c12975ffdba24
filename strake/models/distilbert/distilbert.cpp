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

std::unique_ptr<Block> distilbert_head(const EncoderConfig& config, uint32_t first_site) {
  return std::make_unique<ClassificationHeadBlock>(
      config,
      ClassificationHeadBlock::Design{.dense = "pre_classifier",
                                      .classifier = "classifier",
                                      .activation = kernels::Activation::kRelu,
                                      .dropout_before_dense = false},
      first_site);
}

}  // namespace

EncoderFamily distilbert_family() {
  return {.model_type = "distilbert",
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
                          .untied_bias = nullptr}};
}

}  // namespace strake::models
