#include "strake/training/freezing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strake/core/test_error.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/training/units.h"

namespace strake::training::freezing_test {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

models::SequenceClassifier roberta() {
  models::EncoderConfig config{.model_type = "roberta",
                               .vocab_size = 20,
                               .hidden_size = 8,
                               .num_hidden_layers = 3,
                               .num_attention_heads = 2,
                               .intermediate_size = 12,
                               .max_position_embeddings = 16,
                               .type_vocab_size = 1,
                               .pad_token_id = 1};
  config.set_labels({"no", "yes"}, std::nullopt);
  return models::SequenceClassifier(config);
}

models::Gpt2 gpt2(bool tied) {
  return models::Gpt2(models::parse_gpt2_config({{"model_type", "gpt2"},
                                                 {"vocab_size", 20},
                                                 {"n_embd", 8},
                                                 {"n_layer", 2},
                                                 {"n_head", 2},
                                                 {"n_positions", 10},
                                                 {"tie_word_embeddings", tied}},
                                                "test"));
}

std::vector<std::string> frozen(models::Model& model, const FreezeRules& rules) {
  freeze_parameters(model, rules);
  return frozen_names(model);
}

std::string refusal(const FreezeRules& rules) {
  models::SequenceClassifier model = roberta();
  return error_of([&] { freeze_parameters(model, rules); }).text_of(ErrorKind::kUsage);
}

TEST(Freezing, TakesShellPatternsOfHuggingFaceNames) {
  models::SequenceClassifier model = roberta();
  const auto names = frozen(model, {.freeze = "roberta.embeddings.*,*.layer.[0-1].*", .train_only = ""});
  EXPECT_THAT(names, Contains("roberta.embeddings.word_embeddings.weight"));
  EXPECT_THAT(names, Contains("roberta.encoder.layer.1.attention.self.key.bias"));
  EXPECT_THAT(names, Each(Not(HasSubstr("layer.2"))));
  EXPECT_THAT(names, Each(StartsWith("roberta.")));
  EXPECT_EQ(model.first_trained_block(), 3U);
}

TEST(Freezing, TrainsOnlyWhatIsNamed) {
  models::SequenceClassifier model = roberta();
  const auto names = frozen(model, {.freeze = "", .train_only = "classifier.*"});
  EXPECT_THAT(names, Each(StartsWith("roberta.")));
  EXPECT_EQ(model.num_trained_parameters(), 8 * 8 + 8 + 2 * 8 + 2);
  EXPECT_EQ(model.first_trained_block(), 4U);
  EXPECT_THAT(describe_trainable(model), StartsWith("trainable params: 90 || all params: "));
}

TEST(Freezing, LeavesEverythingToBeTrainedWithoutRules) {
  models::SequenceClassifier model = roberta();
  EXPECT_TRUE(frozen(model, {}).empty());
  EXPECT_EQ(model.num_trained_parameters(), model.num_parameters());
}

TEST(Freezing, OfAModelThatIsOnlyEvaluatedIsOfAll) {
  models::Gpt2 model = gpt2(/*tied=*/false);
  freeze_all(model);
  EXPECT_EQ(model.num_trained_parameters(), 0);
  EXPECT_THAT(frozen_names(model), Contains("lm_head.weight"));
}

TEST(Freezing, OfATiedWeightIsDoneOnceForBothItsNames) {
  for (const char* name : {"transformer.wte.weight", "lm_head.weight"}) {
    models::Gpt2 model = gpt2(true);
    EXPECT_THAT(frozen(model, {.freeze = name, .train_only = ""}), testing::ElementsAre("transformer.wte.weight"));
    EXPECT_EQ(model.blocks().back()->tied().front().trained, models::Trained::kNo);
  }
  models::Gpt2 untied = gpt2(false);
  EXPECT_THAT(frozen(untied, {.freeze = "lm_head.weight", .train_only = ""}), testing::ElementsAre("lm_head.weight"));
}

TEST(Freezing, RefusesPatternsThatMatchNothingAndNamesWhatIsNear) {
  EXPECT_THAT(refusal({.freeze = "roberta.embedings.word_embeddings.weight", .train_only = ""}),
              HasSubstr("--freeze: 'roberta.embedings.word_embeddings.weight' matches no parameter of the model; near "
                        "it are roberta.embeddings.word_embeddings.weight"));
  EXPECT_THAT(refusal({.freeze = "", .train_only = "classifer.*"}),
              HasSubstr("--train_only: 'classifer.*' matches no parameter of the model; near it are classifier.dense"));
  EXPECT_THAT(refusal({.freeze = "*.layer.9.*", .train_only = ""}), HasSubstr("'*.layer.9.*' matches no parameter"));
  EXPECT_THAT(refusal({.freeze = "roberta.*,", .train_only = ""}), HasSubstr("a pattern is empty"));
}

TEST(Freezing, RefusesToPartWhatIsKeptInOneTensor) {
  const std::string told = refusal({.freeze = "*.layer.0.attention.self.query.weight", .train_only = ""});
  EXPECT_THAT(told, HasSubstr("can only be frozen or trained together: roberta.encoder.layer.0.attention.self.query"
                              ".weight, roberta.encoder.layer.0.attention.self.key.weight, roberta.encoder.layer.0"
                              ".attention.self.value.weight"));
  EXPECT_EQ(refusal({.freeze = "*.query.weight,*.key.weight,*.value.weight", .train_only = ""}), "no error");
}

TEST(Freezing, RefusesToFreezeEverything) {
  EXPECT_THAT(refusal({.freeze = "*", .train_only = ""}), HasSubstr("leaves nothing to train"));
}

TEST(Units, AreOneForABlockUnlessItMixesTrainedAndFrozen) {
  models::SequenceClassifier whole = roberta();
  const Units plain(whole);
  ASSERT_EQ(plain.size(), whole.blocks().size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(plain[i].layout.numel(), whole.blocks()[i]->layout().numel());
    EXPECT_FALSE(plain[i].is_frozen());
  }
  models::SequenceClassifier mixed = roberta();
  freeze_parameters(mixed, {.freeze = "", .train_only = "*.layer.1.*.bias,classifier.*"});
  const Units units(mixed);
  ASSERT_EQ(units.size(), whole.blocks().size() + 1);
  ASSERT_EQ(units.of_block(2).size(), 2U);
  const Unit& trained = units[units.of_block(2)[0]];
  const Unit& rest = units[units.of_block(2)[1]];
  EXPECT_FALSE(trained.is_frozen());
  EXPECT_TRUE(rest.is_frozen());
  EXPECT_EQ(trained.parameters.size() + rest.parameters.size(), mixed.blocks()[2]->parameters().size());
  for (size_t p = 0; p < mixed.blocks()[2]->parameters().size(); ++p) {
    const Units::Place& place = units.place(2, p);
    EXPECT_EQ(units[place.unit].layout.entries()[place.entry].name, mixed.blocks()[2]->parameters()[p].name);
  }
  EXPECT_TRUE(units[units.of_block(0)[0]].is_frozen());
  EXPECT_FALSE(units[units.of_block(4)[0]].is_frozen());
}

}  // namespace
}  // namespace strake::training::freezing_test
