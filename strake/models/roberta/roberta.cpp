#include "strake/models/roberta/roberta.h"

#include "strake/models/bert/bert.h"
#include "strake/models/encoder/classification_head.h"

namespace strake::models {
namespace {

std::unique_ptr<Block> roberta_head(const EncoderConfig& config, uint32_t first_site) {
  return std::make_unique<ClassificationHeadBlock>(
      config,
      ClassificationHeadBlock::Design{.dense = "classifier.dense",
                                      .classifier = "classifier.out_proj",
                                      .activation = kernels::Activation::kTanh,
                                      .dropout_before_dense = true},
      first_site);
}

Json roberta_defaults() {
  Json defaults = bert_defaults();
  defaults.update({{"model_type", "roberta"}, {"vocab_size", 50265}, {"pad_token_id", 1}});
  return defaults;
}

}  // namespace

EncoderFamily roberta_family() {
  return {.model_type = "roberta",
          .defaults = &roberta_defaults,
          .architecture = "RobertaForSequenceClassification",
          .token_architecture = "RobertaForTokenClassification",
          .span_architecture = "RobertaForQuestionAnswering",
          .names = bert_names("roberta."),
          .classification_head = &roberta_head,
          .masked_head = {.architecture = "RobertaForMaskedLM",
                          .dense = "lm_head.dense",
                          .norm = "lm_head.layer_norm",
                          .decoder = "lm_head.decoder",
                          .bias = "lm_head.bias",
                          .untied_bias = "lm_head.decoder.bias",
                          .activation = kernels::Activation::kGelu},
          .pad_token_id = 1,
          .positions_follow_padding = true};
}

}  // namespace strake::models
