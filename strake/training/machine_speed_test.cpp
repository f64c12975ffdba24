// How fast a machine is cannot be expected: only that something is measured, and with what.
#include "strake/training/machine_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "strake/comm/thread_comm.h"
#include "strake/core/test_error.h"
#include "strake/core/threads.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/training/freezing.h"

namespace strake::training::machine_speed_test {
namespace {

constexpr int64_t kRoom = int64_t{1} << 30;

std::unique_ptr<models::Model> small_model(const std::string& family, int64_t layers) {
  if (family == "gpt2") {
    return std::make_unique<models::Gpt2>(models::parse_gpt2_config({{"model_type", "gpt2"},
                                                                     {"vocab_size", 50},
                                                                     {"n_embd", 32},
                                                                     {"n_layer", layers},
                                                                     {"n_head", 2},
                                                                     {"n_positions", 64}},
                                                                    "test"));
  }
  models::EncoderConfig config{.model_type = family,
                               .vocab_size = 50,
                               .hidden_size = 32,
                               .num_hidden_layers = layers,
                               .num_attention_heads = 2,
                               .intermediate_size = 64,
                               .max_position_embeddings = 66,
                               .type_vocab_size = family == "distilbert" ? 0 : 2,
                               .pad_token_id = 1};
  config.set_labels({"no", "yes"}, std::nullopt);
  return std::make_unique<models::SequenceClassifier>(config);
}

models::BatchShape batch_of(int64_t sequences, int64_t length) {
  return {.tokens = sequences * length, .sequences = sequences};
}

TEST(MeasureLayer, WorksForEveryFamilyDepthAndPrecision) {
  for (const char* family : {"bert", "roberta", "distilbert", "gpt2"}) {
    for (const int64_t layers : {1, 2, 5}) {
      const auto model = small_model(family, layers);
      for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
        const TrainingOptions options{.bf16 = precision == Precision::kBf16, .fp16 = precision == Precision::kFp16};
        const auto speed = measure_layer(
            {.model = *model, .options = options, .batch = batch_of(6, 20), .most_bytes = kRoom}, {.ranks = 1});
        ASSERT_TRUE(speed.has_value()) << family;
        EXPECT_TRUE(std::isfinite(speed->flops) && speed->flops > 0) << family;
        EXPECT_GE(speed->spread, 1);
        EXPECT_EQ(speed->tokens, 120) << "as many as the run has";
      }
    }
  }
}

TEST(MeasureLayer, WorksWithFrozenParametersAndSeveralRanks) {
  const auto model = small_model("bert", 4);
  freeze_parameters(*model, {.freeze = "", .train_only = "classifier.*"});
  const auto speed = measure_layer({.model = *model, .options = {}, .batch = batch_of(4, 32), .most_bytes = kRoom},
                                   {.ranks = 2, .threads = 1, .at_once = 2});
  EXPECT_GT(speed.value().flops, 0);
}

TEST(MeasureLayer, TakesNoMoreMemoryThanItMay) {
  const auto model = small_model("bert", 4);
  const auto tokens = [&](int64_t bytes) {
    const auto speed =
        measure_layer({.model = *model, .options = {}, .batch = batch_of(64, 8), .most_bytes = bytes}, {.ranks = 1});
    return speed ? speed->tokens : 0;
  };
  EXPECT_EQ(tokens(kRoom), 512);
  EXPECT_EQ(tokens(1000), 0);
  const int64_t some = tokens(300000);
  EXPECT_GT(some, 0);
  EXPECT_LT(some, 512);
}

TEST(MeasureMachine, FindsSpeedsOfMemoryAndOfSumsBetweenRanks) {
  for (const Crew& crew : {Crew{}, Crew{.ranks = 2, .threads = 1, .at_once = 2}}) {
    EXPECT_GT(measure_memory(crew), 0);
    EXPECT_GT(measure_sums_between_ranks(crew), 0);
  }
}

TEST(MeasureMachine, RanksThatAreThereMeasureTogetherAndGetTheSame) {
  const auto model = small_model("bert", 4);
  comm::run_ranks(3, 1, [&](comm::Comm& comm) {
    const Crew crew{.ranks = 3, .threads = 1, .at_once = 1, .started = StartedRanks{.comm = comm, .on_machine = 3}};
    // Not all of them have room for the same.
    const int64_t room = comm.rank() == 1 ? 900000 : kRoom;
    const auto layer =
        measure_layer({.model = *model, .options = {}, .batch = batch_of(64, 8), .most_bytes = room}, crew);
    ASSERT_TRUE(layer.has_value());
    EXPECT_LT(layer->tokens, 512);
    const double sums = measure_sums_between_ranks(crew);
    const double memory = measure_memory(crew);
    const std::vector<double> own{layer->flops, static_cast<double>(layer->tokens), layer->spread, sums, memory};
    const std::vector<double> all = comm::all_gather_values(comm, own);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_GT(all[i], 0);
      EXPECT_EQ(all[i], own[i % own.size()]);
    }
  });
}

TEST(MeasureMachine, NoRankGetsASpeedWhereOneHasNoRoom) {
  const auto model = small_model("bert", 4);
  comm::run_ranks(2, 1, [&](comm::Comm& comm) {
    const Crew crew{.ranks = 2, .threads = 1, .at_once = 2, .started = StartedRanks{.comm = comm, .on_machine = 2}};
    const int64_t room = comm.rank() == 1 ? 1000 : kRoom;
    EXPECT_FALSE(measure_layer({.model = *model, .options = {}, .batch = batch_of(64, 8), .most_bytes = room}, crew));
  });
}

TEST(MeasureMachine, FindsTheSpeedOfADiskAndSaysWhereThereIsNone) {
  EXPECT_GT(measure_disk(testing::TempDir()), 0);
  EXPECT_TRUE(error_of([&] { measure_disk("/nowhere/at/all"); }).says(ErrorKind::kIo, "/nowhere/at/all"));
}

TEST(Crew, HasNoMoreRanksAtOnceThanTheMachineHasCores) {
  const Crew crew = Crew::of(4096);
  EXPECT_EQ(crew.ranks, 4096);
  EXPECT_LE(crew.at_once, std::max(1, available_cores() / crew.threads));
  EXPECT_EQ(crew.share(2), 2.0 / 4096);
  EXPECT_EQ(Crew::of(1).at_once, 1);
}

}  // namespace
}  // namespace strake::training::machine_speed_test
