// The plan against the measured peak of tracked allocations.
#include "strake/training/memory_plan.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "strake/comm/thread_comm.h"
#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/models/weights.h"
#include "strake/tensors/tracked_memory.h"
#include "strake/training/evaluator.h"
#include "strake/training/freezing.h"
#include "strake/training/run_checkpoint.h"
#include "strake/training/stepper.h"

namespace strake::training {
namespace {

constexpr int64_t kLength = 128;  // tokens of a sequence
constexpr int64_t kHidden = 128;
constexpr int64_t kLayers = 4;

// What small tensors add, and gradient buffers that are or are not on their way at the highest moment.
constexpr double kTolerance = 0.03;

enum class OnDisk { kNothing, kStates, kAll };

struct Case {
  std::string family = "bert";
  ShardingStage stage = kZero0;
  int ranks = 1;
  bool recompute = false;
  Precision precision = Precision::kFp32;
  int64_t accumulation = 1;
  int64_t sequences = 12;  // of a micro-batch
  double dropout = 0.1;
  std::string optim = "adamw_torch";
  Precision reduction = Precision::kFp32;
  Precision sum = Precision::kFp32;  // of gradients
  Precision master = Precision::kFp32;
  FreezeRules frozen;
  OnDisk disk = OnDisk::kNothing;
  int64_t group = 1;  // ranks of a group, of hybrid sharding
  int64_t vocabulary = 1500;
  int64_t evaluated = 0;  // sequences of an evaluation's batch
  bool async_save = false;

  Case without_evaluation() const {
    Case other = *this;
    other.evaluated = 0;
    return other;
  }
  std::string text() const {
    return fmt::format("{}{} {}{} {} rank{} {}{}{}{}{}{}{}{}, gradients reduced in {}, added up in {}, masters of {}",
                       family, vocabulary > 1500 ? " of many words" : "", stage.name,
                       disk == OnDisk::kAll      ? " all on disk"
                       : disk == OnDisk::kStates ? " states on disk"
                                                 : "",
                       ranks, ranks == 1 ? " " : "s", to_string(precision), recompute ? " recompute" : "",
                       accumulation > 1 ? fmt::format(" x{}", accumulation) : "", dropout == 0 ? " no-dropout" : "",
                       optim == "adamw_torch" ? "" : " " + optim,
                       (evaluated > 0 ? fmt::format(" evaluates {}", evaluated) : "") + (async_save ? " async" : ""),
                       frozen.freeze.empty() ? "" : " freeze " + frozen.freeze,
                       frozen.train_only.empty() ? "" : " train " + frozen.train_only, to_string(reduction),
                       to_string(sum), to_string(master));
  }
};

std::unique_ptr<models::Model> make_whole_model(const Case& test) {
  if (test.family == "gpt2") {
    return std::make_unique<models::Gpt2>(models::parse_gpt2_config({{"model_type", "gpt2"},
                                                                     {"vocab_size", test.vocabulary},
                                                                     {"n_embd", kHidden},
                                                                     {"n_layer", kLayers},
                                                                     {"n_head", 4},
                                                                     {"n_positions", kLength},
                                                                     {"embd_pdrop", test.dropout},
                                                                     {"attn_pdrop", test.dropout},
                                                                     {"resid_pdrop", test.dropout}},
                                                                    "test"));
  }
  models::EncoderConfig config{.model_type = test.family,
                               .vocab_size = test.vocabulary,
                               .hidden_size = kHidden,
                               .num_hidden_layers = kLayers,
                               .num_attention_heads = 4,
                               .intermediate_size = 4 * kHidden,
                               .max_position_embeddings = kLength + 2,
                               .type_vocab_size = test.family == "distilbert" ? 0 : 2,
                               .pad_token_id = 1,
                               .hidden_dropout = test.dropout,
                               .attention_output_dropout = test.dropout,
                               .attention_dropout = test.dropout,
                               .classifier_dropout = test.dropout};
  config.set_labels({"no", "yes"}, std::nullopt);
  return std::make_unique<models::SequenceClassifier>(config);
}

std::unique_ptr<models::Model> make_model(const Case& test) {
  auto model = make_whole_model(test);
  freeze_parameters(*model, test.frozen);
  return model;
}

data::TokenDataset make_dataset(int64_t sequences) {
  data::TokenDatasetBuilder builder("test");
  std::vector<int32_t> ids(kLength);
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t t = 0; t < kLength; ++t) ids[static_cast<size_t>(t)] = static_cast<int32_t>((7 * s + 13 * t) % 1500);
    builder.append({.ids = ids, .label = static_cast<int32_t>(s % 2), .row = s});
  }
  return builder.build();
}

TrainingOptions options_of(const Case& test) {
  return {.gradient_accumulation_steps = test.accumulation,
          .optim = test.optim,
          .bf16 = test.precision == Precision::kBf16,
          .fp16 = test.precision == Precision::kFp16,
          .gradient_checkpointing = test.recompute,
          .sharding = {.stage = test.stage,
                       .group_size = test.group,
                       .share_parameters = false,
                       .offload = {.optimizer = test.disk != OnDisk::kNothing,
                                   .parameters = test.disk == OnDisk::kAll,
                                   .folder = std::filesystem::temp_directory_path(),
                                   .window_elements = 32768}},
          .reduction = test.reduction,
          .accumulation = test.sum,
          .master = test.master,
          .async_save = test.async_save};
}

void evaluate(const Case& test, const models::Model& model, ShardedParameters& parameters, comm::Comm& comm) {
  const data::TokenDataset dataset = make_dataset(test.evaluated * test.ranks);
  if (test.family == "gpt2") {
    evaluate_language_model(model, parameters, comm, dataset, test.evaluated);
  } else {
    evaluate(dynamic_cast<const models::SequenceClassifier&>(model), parameters, comm, dataset, test.evaluated);
  }
}

// Of rank 0, in initial weights, then two steps, an evaluation and then what is written of them, or before the last two
// what is copied. Ranks are threads here, whose highest moments need not be at the same time: what is measured is what
// the rank's own thread allocates.
int64_t measured_peak(const Case& test) {
  const int64_t per_step = test.ranks * test.accumulation;
  const data::TokenDataset dataset = make_dataset(test.sequences * per_step);
  data::GlobalStep step;
  for (int64_t m = 0; m < per_step; ++m) {
    data::MicroBatch batch(static_cast<size_t>(test.sequences));
    std::iota(batch.begin(), batch.end(), m * test.sequences);
    step.micro_batches.push_back(batch);
  }
  const TrainingOptions options = options_of(test);
  int64_t peak = 0;
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("strake_memory_plan_test_{}", ::getpid());
  std::filesystem::create_directories(folder);
  const auto run = [&](comm::Comm& comm) {
    tensors::reset_peak_tracked_bytes_of_thread();
    const auto model = make_model(test);
    ShardedParameters parameters(*model, comm, options);
    for (size_t i = 0; i < parameters.num_blocks(); ++i) {
      at::Tensor whole = at::zeros({model->blocks()[i]->layout().numel()});
      models::initialize_block(*model->blocks()[i], 0.02, 42, whole);
      parameters.assign(i, whole);
    }
    Stepper stepper(*model, parameters, comm, options);
    TensorFiles copied(folder, TensorFiles::Write::kLater);
    const auto take_step = [&](int64_t number) {
      stepper.run(dataset, step, {.number = number, .learning_rate = 1e-3});
    };
    take_step(1);
    if (test.async_save) {
      stepper.release_buffers();
      write_run(*model, parameters, {}, {}, copied);
      take_step(2);
    }
    take_step(3);
    if (test.evaluated > 0) evaluate(test, *model, parameters, comm);
    if (!test.async_save) {
      stepper.release_buffers();
      TensorFiles files(folder, TensorFiles::Write::kNow);
      write_run(*model, parameters, {}, {}, files);
    }
    if (comm.rank() == 0) peak = tensors::peak_tracked_bytes_of_thread();
  };
  if (test.ranks == 1) {
    comm::SelfComm self;
    run(self);
  } else {
    comm::run_ranks(test.ranks, 1, run);
  }
  std::filesystem::remove_all(folder);
  return peak;
}

MemoryPlan plan_of(const Case& test) {
  const auto model = make_model(test);
  const TrainingOptions options = options_of(test);
  return plan_memory({.model = *model,
                      .options = options,
                      .batch = {.tokens = test.sequences * kLength, .sequences = test.sequences},
                      .evaluation = {.tokens = test.evaluated * kLength, .sequences = test.evaluated},
                      .num_ranks = test.ranks});
}

double deviation(const Case& test) {
  tensors::track_tensor_memory();
  const auto planned = static_cast<double>(plan_of(test).rank_bytes());
  auto measured = static_cast<double>(measured_peak(test));
  // The plan is of communication that is one block behind, the most that it can be. How far it is depends on what else
  // the machine does, so that a run may take a gradient buffer less: the highest of several runs counts. One that takes
  // more than planned is not measured again.
  for (int tries = 1; test.ranks > 1 && tries < 5 && planned / measured - 1 > kTolerance; ++tries) {
    measured = std::max(measured, static_cast<double>(measured_peak(test)));
  }
  if (std::getenv("STRAKE_PRINT_MEMORY") != nullptr) {
    fmt::print("{:<50} planned {:8.3f} MiB, measured {:8.3f} MiB, {:+.2f} %\n", test.text(), planned / 1048576,
               measured / 1048576, 100 * (planned / measured - 1));
  }
  return planned / measured - 1;
}

void expect_planned(Case test) {
  for (const bool recompute : {false, true}) {
    test.recompute = recompute;
    EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
  }
}

class PlannedMemory : public testing::TestWithParam<const char*> {};

TEST_P(PlannedMemory, IsWhatTrainingTakesInEveryStage) {
  for (const ShardingStage& stage : {kZero0, kZero1, kZero2, kZero3}) {
    for (const int ranks : {1, 2}) {
      if (ranks == 1 && (stage.gathered == Gathered::kAfterUpdate)) continue;  // as stage 0
      expect_planned({.family = GetParam(), .stage = stage, .ranks = ranks, .precision = Precision::kFp32});
      expect_planned({.family = GetParam(), .stage = stage, .ranks = ranks, .precision = Precision::kBf16});
    }
  }
}

TEST_P(PlannedMemory, IsWhatTrainingTakesWithSeveralMicroBatchesAndWithoutDropout) {
  for (const int ranks : {1, 2}) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      const Case accumulating{
          .family = GetParam(), .stage = kZero2, .ranks = ranks, .precision = precision, .accumulation = 2};
      EXPECT_NEAR(deviation(accumulating), 0, kTolerance) << accumulating.text();
    }
    const Case plain{.family = GetParam(), .stage = kZero1, .ranks = ranks, .dropout = 0, .optim = "lion"};
    EXPECT_NEAR(deviation(plain), 0, kTolerance) << plain.text();
  }
}

TEST_P(PlannedMemory, IsWhatTrainingTakesWhileACheckpointIsWritten) {
  for (const ShardingStage& stage : {kZero0, kZero3}) {
    for (const int ranks : {1, 2}) {
      Case test{.family = GetParam(), .stage = stage, .ranks = ranks, .async_save = true};
      EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
      test.precision = Precision::kBf16;
      test.evaluated = 40;
      EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
      test.frozen.train_only = "*.bias";
      test.optim = "lion";
      EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
    }
  }
}

TEST_P(PlannedMemory, IsWhatTrainingTakesInFp16AndWithGradientsOfSixteenBits) {
  for (const int ranks : {1, 2}) {
    Case test{.family = GetParam(), .stage = kZero3, .ranks = ranks, .precision = Precision::kFp16};
    EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
    test.recompute = true;
    test.accumulation = 2;
    test.reduction = Precision::kFp16;
    EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
    test.precision = Precision::kBf16;
    test.sum = Precision::kBf16;
    EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
  }
}

TEST_P(PlannedMemory, IsWhatTrainingTakesInBf16Alone) {
  Case test{.family = GetParam(), .precision = Precision::kBf16, .sum = Precision::kBf16, .master = Precision::kBf16};
  for (const ShardingStage& stage : {kZero0, kZero2, kZero3}) {
    for (const int ranks : {1, 2}) {
      test.stage = stage;
      test.ranks = ranks;
      EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
    }
  }
  test.recompute = true;
  test.accumulation = 2;
  test.optim = "lion";
  EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
  test.frozen.train_only = "*.bias";
  EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
}

TEST_P(PlannedMemory, IsWhatTrainingTakesWithMasterWeightsOfFp16) {
  Case test{.family = GetParam(), .precision = Precision::kFp16, .sum = Precision::kFp16, .master = Precision::kFp16};
  for (const ShardingStage& stage : {kZero0, kZero2, kZero3}) {
    for (const int ranks : {1, 2}) {
      test.stage = stage;
      test.ranks = ranks;
      EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
    }
  }
  test.disk = OnDisk::kAll;
  EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
}

TEST_P(PlannedMemory, IsWhatTrainingTakesWithStateOnDisk) {
  for (const OnDisk disk : {OnDisk::kStates, OnDisk::kAll}) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
      Case test{.family = GetParam(), .stage = kZero3, .precision = precision, .sequences = 2, .disk = disk};
      EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
      test.stage = kHybrid;
      for (const auto& [ranks, group] : {std::pair{2, 1}, {4, 2}}) {
        test.ranks = ranks;
        test.group = group;
        EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
      }
    }
  }
  Case frozen{.family = GetParam(),
              .stage = kHybrid,
              .ranks = 4,
              .recompute = true,
              .precision = Precision::kBf16,
              .sequences = 2,
              .frozen = {.freeze = "", .train_only = "*.bias"},
              .disk = OnDisk::kAll,
              .group = 2};
  EXPECT_NEAR(deviation(frozen), 0, kTolerance) << frozen.text();
}

TEST_P(PlannedMemory, IsWhatEvaluationsOfLargerBatchesTake) {
  Case test{.family = GetParam(), .sequences = 1, .evaluated = 48};
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    test.precision = precision;
    for (const int ranks : {1, 2}) {
      test.ranks = ranks;
      for (const ShardingStage& stage : {kZero0, kZero3}) {
        test.stage = stage;
        EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
        EXPECT_GT(plan_of(test).rank_bytes(), plan_of(test.without_evaluation()).rank_bytes());
      }
    }
  }
}

// Loading and writing the embeddings, and not a step, take most then.
TEST_P(PlannedMemory, IsWhatLoadingAndSavingALargeVocabularyTake) {
  Case test{.family = GetParam(), .stage = kZero3, .recompute = true, .sequences = 1, .vocabulary = 30000};
  for (const OnDisk disk : {OnDisk::kNothing, OnDisk::kStates, OnDisk::kAll}) {
    test.disk = disk;
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      test.precision = precision;
      for (const int ranks : {1, 2}) {
        test.ranks = ranks;
        EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
      }
    }
  }
  test.frozen = {.freeze = "", .train_only = "*.bias"};
  EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
  test.frozen = {};
  test.sum = test.master = Precision::kBf16;
  EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
}

TEST_P(PlannedMemory, IsWhatTrainingTakesWithFrozenParameters) {
  const bool is_gpt2 = std::string_view(GetParam()) == "gpt2";
  const std::vector<FreezeRules> choices{
      {.freeze = "", .train_only = is_gpt2 ? "*.ln_f.*" : "*classifier*"},
      {.freeze = "", .train_only = "*.bias"},
      {.freeze = is_gpt2 ? "*.wte.*" : "*.embeddings.*", .train_only = ""},
      {.freeze = is_gpt2 ? "*.wpe.*,*.h.[0-1].*" : "*.embeddings.*,*.layer.[0-1].*", .train_only = ""},
      {.freeze = "", .train_only = is_gpt2 ? "*.wte.*" : "*.word_embeddings.*"}};
  for (const FreezeRules& rules : choices) {
    for (const Case& layout :
         {Case{.stage = kZero0, .precision = Precision::kBf16}, Case{.stage = kZero0, .recompute = true},
          Case{.stage = kZero2, .ranks = 2}, Case{.stage = kZero3, .ranks = 2, .precision = Precision::kBf16},
          Case{.stage = kZero3, .ranks = 2, .recompute = true}}) {
      Case test = layout;
      test.family = GetParam();
      test.frozen = rules;
      EXPECT_NEAR(deviation(test), 0, kTolerance) << test.text();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PlannedMemory, testing::Values("bert", "roberta", "distilbert", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(MemoryPlan, CountsParametersThatThreadsShareOnce) {
  const Case test{.stage = kZero2, .ranks = 4};
  const auto model = make_model(test);
  TrainingOptions options = options_of(test);
  const auto plan = [&](RankPlacement placement) {
    return plan_memory({.model = *model,
                        .options = options,
                        .batch = {.tokens = 1000, .sequences = 10},
                        .num_ranks = 4,
                        .placement = placement});
  };
  const MemoryPlan separate = plan(RankPlacement::kThreads);
  EXPECT_EQ(separate.shared_bytes, 0);
  options.sharding.share_parameters = true;
  const MemoryPlan shared = plan(RankPlacement::kThreads);
  EXPECT_EQ(shared.shared_bytes, shared.rank[static_cast<size_t>(models::MemoryUse::kParameters)]);
  EXPECT_EQ(shared.process_bytes, separate.process_bytes - 3 * shared.shared_bytes);
  EXPECT_EQ(plan(RankPlacement::kProcesses).process_bytes, plan(RankPlacement::kProcesses).rank_bytes());
}

TEST(MemoryPlan, CountsAPartOfWhatProcessesHaveInCommon) {
  const Case test{.stage = kZero2, .ranks = 4};
  const auto model = make_model(test);
  TrainingOptions options = options_of(test);
  options.sharding.share_parameters = true;
  const auto parameters = [&](bool shares_memory) {
    const MemoryPlan plan = plan_memory({.model = *model,
                                         .options = options,
                                         .batch = {.tokens = 1000, .sequences = 10},
                                         .num_ranks = 4,
                                         .placement = RankPlacement::kProcesses,
                                         .shares_memory = shares_memory});
    EXPECT_EQ(plan.shared_bytes, 0);
    EXPECT_EQ(plan.process_bytes, plan.rank_bytes());
    return plan.rank[static_cast<size_t>(models::MemoryUse::kParameters)];
  };
  EXPECT_NEAR(static_cast<double>(4 * parameters(true)), static_cast<double>(parameters(false)), 400);
}

TEST(MemoryPlan, TakesLessInEachStageAndWithRecomputation) {
  int64_t last = INT64_MAX;
  for (const ShardingStage& stage : {kZero0, kZero2, kZero3}) {
    const int64_t now = plan_of({.stage = stage, .ranks = 8, .sequences = 1}).rank_bytes();
    EXPECT_LT(now, last) << stage.name;
    last = now;
  }
  EXPECT_LT(plan_of({.recompute = true}).rank_bytes(), plan_of({}).rank_bytes());
}

// With 2 bytes for the parameter, 2 for its gradient and `states` for the optimizer's state.
void expect_bytes_of_a_parameter(const Case& test, int states) {
  const int64_t parameters = make_model(test)->num_parameters();
  const MemoryPlan plan = plan_of(test);
  const auto bytes_each = [&](models::MemoryUse use) {
    return static_cast<double>(plan.rank[static_cast<size_t>(use)]) / static_cast<double>(parameters);
  };
  // Buffers end on whole chunks.
  EXPECT_NEAR(bytes_each(models::MemoryUse::kParameters), 2, 0.05);
  EXPECT_EQ(bytes_each(models::MemoryUse::kMasterWeights), 0);
  EXPECT_NEAR(bytes_each(models::MemoryUse::kGradients), 2, 0.05);
  EXPECT_NEAR(bytes_each(models::MemoryUse::kOptimizer), states, 0.01 * states);
}

TEST(MemoryPlan, WithoutFp32MastersIsEightBytesAParameterInBf16AndTwelveInFp16) {
  expect_bytes_of_a_parameter({.precision = Precision::kBf16, .sum = Precision::kBf16, .master = Precision::kBf16}, 4);
  expect_bytes_of_a_parameter({.precision = Precision::kFp16, .sum = Precision::kFp16, .master = Precision::kFp16}, 8);
}

TEST(MemoryPlan, TakesLessTheMoreIsFrozen) {
  const auto bytes_without = [](const char* pattern) {
    return static_cast<double>(plan_of({.frozen = {.freeze = pattern, .train_only = ""}}).rank_bytes());
  };
  const auto all = static_cast<double>(plan_of({}).rank_bytes());
  const MemoryPlan head = plan_of({.frozen = {.freeze = "", .train_only = "classifier.*"}});
  EXPECT_LT(bytes_without("bert.embeddings.*,*.layer.[0-1].*"), 0.7 * all);
  // Beside the last layer, which gives first tokens alone, two whole ones.
  EXPECT_LT(static_cast<double>(head.rank_bytes()), 0.5 * bytes_without("bert.embeddings.*,*.layer.0.*"));
  EXPECT_LT(head.rank[static_cast<size_t>(models::MemoryUse::kOptimizer)], 10000);
}

}  // namespace
}  // namespace strake::training
