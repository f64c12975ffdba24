// Counted one matrix product after the other. Whole numbers below 2^53: exact.
#include "strake/training/training_flops.h"

#include <gtest/gtest.h>

#include <memory>

#include "strake/models/encoder/masked_language_model.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/training/freezing.h"

namespace strake::training::training_flops_test {
namespace {

constexpr double kLayers = 3;
constexpr double kHidden = 8;
constexpr double kInner = 12;
constexpr double kLabels = 2;
constexpr double kVocabulary = 50;

// Sequences of 5, 1 and 7 tokens.
constexpr models::BatchShape kWork{.tokens = 13, .sequences = 3, .squared_lengths = 25 + 1 + 49};

double product(double rows, double inner, double columns) { return 2 * rows * inner * columns; }

constexpr double kProjection = 2 * 13 * kHidden * kHidden;  // of all tokens, hidden to hidden
constexpr double kFeedForward = 2 * 13 * kHidden * kInner;  // one of two
constexpr double kAttention = 2 * 2 * kHidden * 75;         // scores, and their product with the values
constexpr double kLayer = 4 * kProjection + kAttention + 2 * kFeedForward;
constexpr double kFirstProjection = 2 * 3 * kHidden * kHidden;  // of the first tokens alone
constexpr double kFirstFeedForward = 2 * 3 * kHidden * kInner;
constexpr double kLastLayer = 3 * kProjection + kAttention + kFirstProjection + 2 * kFirstFeedForward;
constexpr double kDense = 2 * 3 * kHidden * kHidden;
constexpr double kOutput = 2 * 3 * kHidden * kLabels;
constexpr double kForward = (kLayers - 1) * kLayer + kLastLayer + kDense + kOutput;

models::EncoderConfig encoder() {
  return {.model_type = "bert",
          .vocab_size = 50,
          .hidden_size = 8,
          .num_hidden_layers = 3,
          .num_attention_heads = 2,
          .intermediate_size = 12,
          .max_position_embeddings = 10,
          .type_vocab_size = 2};
}

std::unique_ptr<models::Model> bert() {
  models::EncoderConfig config = encoder();
  config.set_labels({"no", "yes"}, std::nullopt);
  return std::make_unique<models::SequenceClassifier>(config);
}

std::unique_ptr<models::Model> gpt2() {
  return std::make_unique<models::Gpt2>(models::parse_gpt2_config({{"model_type", "gpt2"},
                                                                   {"vocab_size", 50},
                                                                   {"n_embd", 8},
                                                                   {"n_inner", 12},
                                                                   {"n_layer", 3},
                                                                   {"n_head", 2},
                                                                   {"n_positions", 10}},
                                                                  "test"));
}

double flops(std::unique_ptr<models::Model> model, const FreezeRules& rules = {},
             Recomputation recomputation = Recomputation::kNotCounted) {
  freeze_parameters(*model, rules);
  return TrainingFlops(*model, recomputation)(kWork);
}

TEST(TrainingFlops, AreThreeForwardPassesOfAModelThatIsTrainedAsAWhole) { EXPECT_EQ(flops(bert()), 3 * kForward); }

TEST(TrainingFlops, OfADecoderCountWhatEachPositionSees) {
  double forward = 0;
  for (const int length : {5, 1, 7}) {
    for (int position = 0; position < length; ++position) {
      const double seen = position + 1;
      forward += kLayers *
                 (product(1, kHidden, 4 * kHidden) + product(1, kHidden, 2 * kInner) + 2 * product(1, kHidden, seen));
      if (position > 0) forward += product(1, kHidden, kVocabulary);
    }
  }
  EXPECT_EQ(flops(gpt2()), 3 * forward);
}

TEST(TrainingFlops, OfAMaskedLanguageModelCountItsMaskedTokens) {
  const models::MaskedLanguageModel model(encoder(), {});
  models::BatchShape work = kWork;
  work.targets = 2;
  const double last = 3 * kProjection + kAttention + product(2, kHidden, kHidden) + 2 * product(2, kHidden, kInner);
  const double head = product(2, kHidden, kHidden) + product(2, kHidden, kVocabulary);
  EXPECT_EQ(TrainingFlops(model)(work), 3 * ((kLayers - 1) * kLayer + last + head));
}

TEST(TrainingFlops, OfAHeadAloneAreAForwardPassAndTheHeadsWeightGradients) {
  EXPECT_EQ(flops(bert(), {.freeze = "", .train_only = "classifier.*"}), kForward + kOutput);
  EXPECT_EQ(flops(bert(), {.freeze = "", .train_only = "classifier.*,bert.pooler.*"}), kForward + kDense + 2 * kOutput)
      << "the pooler's input needs no gradient";
}

TEST(TrainingFlops, OfFrozenLayersOnTheWayToTrainedOnesLackWeightGradients) {
  EXPECT_EQ(flops(bert(), {.freeze = "", .train_only = "bert.embeddings.*"}), 2 * kForward + kLayers * kAttention)
      << "activations' gradients only, of which attention has two for each product";
  // The weight's gradient and that of the activations it makes; nothing goes on to attention.
  EXPECT_EQ(flops(bert(), {.freeze = "", .train_only = "*.layer.2.intermediate.dense.weight"}),
            kForward + 2 * kFirstFeedForward + kDense + kOutput);
}

TEST(TrainingFlops, OfLayersBeforeTheFirstTrainedOneAreAForwardPass) {
  const double trained_layer = 3 * kLastLayer - 3 * kProjection;  // the gradient of its input is of use to nobody
  EXPECT_EQ(flops(bert(), {.freeze = "bert.embeddings.*,*.layer.[0-1].*", .train_only = ""}),
            2 * kLayer + trained_layer + 3 * (kDense + kOutput));
}

TEST(TrainingFlops, CountRecomputationOfTheBlocksThatHaveABackwardPass) {
  EXPECT_EQ(flops(bert(), {}, Recomputation::kCounted), 4 * kForward - kDense - kOutput) << "the head is kept";
  const FreezeRules rules{.freeze = "bert.embeddings.*,*.layer.[0-1].*", .train_only = ""};
  EXPECT_EQ(flops(bert(), rules, Recomputation::kCounted), flops(bert(), rules) + kLastLayer);
}

TEST(TrainingFlops, AreZeroForNothing) { EXPECT_EQ(TrainingFlops(*bert())({}), 0); }

}  // namespace
}  // namespace strake::training::training_flops_test
