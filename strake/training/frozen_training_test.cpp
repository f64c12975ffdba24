// Steps with frozen parameters: these stay as they are, and all else is the same on every layout.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "strake/comm/thread_comm.h"
#include "strake/core/test_error.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/models/weights.h"
#include "strake/training/freezing.h"
#include "strake/training/stepper.h"

namespace strake::training::frozen_training_test {
namespace {

constexpr int kMicroBatches = 4;  // of a step
constexpr int kSteps = 3;
constexpr int64_t kLength = 12;  // tokens of a sequence
constexpr int32_t kVocabulary = 1500;

std::unique_ptr<models::Model> make_model(const std::string& family) {
  if (family == "gpt2") {
    return std::make_unique<models::Gpt2>(models::parse_gpt2_config({{"model_type", "gpt2"},
                                                                     {"vocab_size", kVocabulary},
                                                                     {"n_embd", 32},
                                                                     {"n_layer", 2},
                                                                     {"n_head", 2},
                                                                     {"n_positions", 16}},
                                                                    "test"));
  }
  models::EncoderConfig config{.model_type = "bert",
                               .vocab_size = kVocabulary,
                               .hidden_size = 32,
                               .num_hidden_layers = 2,
                               .num_attention_heads = 2,
                               .intermediate_size = 1024,
                               .max_position_embeddings = 16,
                               .type_vocab_size = 2};
  config.set_labels({"no", "yes"}, std::nullopt);
  return std::make_unique<models::SequenceClassifier>(config);
}

// What is trained of which model.
struct Choice {
  std::string name;
  std::string family;
  FreezeRules rules;
};

void PrintTo(const Choice& choice, std::ostream* stream) { *stream << choice.name; }

std::vector<Choice> choices() {
  return {{"HeadOnly", "bert", {.freeze = "", .train_only = "classifier.*,bert.pooler.*"}},
          {"ClassifierOfAMixedHead", "bert", {.freeze = "", .train_only = "classifier.*"}},
          {"BiasesOnly", "bert", {.freeze = "", .train_only = "*.bias"}},
          {"WordEmbeddingsBelowFrozenLayers", "bert", {.freeze = "", .train_only = "*.word_embeddings.weight"}},
          {"AllButEmbeddings", "bert", {.freeze = "bert.embeddings.*", .train_only = ""}},
          {"WeightsOfOneLayer", "bert", {.freeze = "", .train_only = "*.layer.1.output.dense.weight"}},
          {"NormsOnly", "gpt2", {.freeze = "", .train_only = "*.ln_*"}},
          {"AllButTiedEmbeddings", "gpt2", {.freeze = "transformer.wte.weight", .train_only = ""}},
          {"TiedEmbeddingsOnly", "gpt2", {.freeze = "", .train_only = "lm_head.weight"}}};
}

data::TokenDataset make_dataset(int64_t sequences) {
  data::TokenDatasetBuilder builder("test");
  std::vector<int32_t> ids(kLength);
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t t = 0; t < kLength; ++t) {
      ids[static_cast<size_t>(t)] = static_cast<int32_t>((71 * s + 13 * t * t) % kVocabulary);
    }
    builder.append({.ids = ids, .label = static_cast<int32_t>(s % 2), .row = s});
  }
  return builder.build();
}

struct Outcome {
  std::vector<at::Tensor> before, after;           // fp32 weights, by block
  std::vector<std::vector<at::Tensor>> gradients;  // of the first step, by block and parameter; undefined if frozen
  std::vector<double> losses;
};

// The pieces of the summed gradient, by parameter. Collective.
std::vector<std::vector<at::Tensor>> whole_gradients(ShardedParameters& parameters, const models::Model& model) {
  std::vector<std::vector<at::Tensor>> result;
  for (const auto& block : model.blocks()) result.emplace_back(block->parameters().size());
  for (size_t u = 0; u < parameters.units().size(); ++u) {
    const Unit& unit = parameters.units()[u];
    if (unit.is_frozen()) continue;
    const at::Tensor whole = parameters.gather_whole(u, parameters.unit(u).gradient).clone();
    for (size_t e = 0; e < unit.parameters.size(); ++e) {
      result[unit.block][unit.parameters[e]] = tensors::FlatLayout::view(whole, unit.layout.entries()[e]);
    }
  }
  return result;
}

struct Run {
  int ranks = 1;
  TrainingOptions options;
};

Outcome train(const std::string& family, const FreezeRules& rules, const Run& run) {
  const int64_t per_step = run.options.per_device_train_batch_size * kMicroBatches;
  const data::TokenDataset dataset = make_dataset(per_step);
  data::GlobalStep step;
  for (int m = 0; m < kMicroBatches; ++m) {
    data::MicroBatch batch(static_cast<size_t>(run.options.per_device_train_batch_size));
    std::iota(batch.begin(), batch.end(), m * run.options.per_device_train_batch_size);
    step.micro_batches.push_back(batch);
  }
  TrainingOptions options = run.options;
  options.gradient_accumulation_steps = kMicroBatches / run.ranks;
  const auto model = make_model(family);
  freeze_parameters(*model, rules);
  Outcome outcome;
  comm::run_ranks(run.ranks, 1, [&](comm::Comm& comm) {
    ShardedParameters parameters(*model, comm, options);
    Outcome own;
    for (size_t i = 0; i < parameters.num_blocks(); ++i) {
      at::Tensor whole = at::zeros({model->blocks()[i]->layout().numel()});
      models::initialize_block(*model->blocks()[i], 0.2, 42, whole);
      own.before.push_back(whole);
      parameters.assign(i, whole);
    }
    Stepper stepper(*model, parameters, comm, options);
    for (int64_t number = 1; number <= kSteps; ++number) {
      own.losses.push_back(stepper.run(dataset, step, {.number = number, .learning_rate = 1e-3}).loss);
      if (number == 1) own.gradients = whole_gradients(parameters, *model);
    }
    for (size_t i = 0; i < parameters.num_blocks(); ++i) own.after.push_back(parameters.whole_weights(i).clone());
    if (comm.rank() == comm.size() - 1) outcome = std::move(own);
  });
  return outcome;
}

TrainingOptions options_with(ShardingOptions sharding) {
  return {.per_device_train_batch_size = 3, .weight_decay = 0.1, .sharding = std::move(sharding)};
}

void expect_frozen_as_before(const Outcome& outcome, const Choice& choice) {
  const auto model = make_model(choice.family);
  freeze_parameters(*model, choice.rules);
  int64_t changed = 0;
  for (size_t i = 0; i < model->blocks().size(); ++i) {
    const models::Block& block = *model->blocks()[i];
    for (size_t p = 0; p < block.parameters().size(); ++p) {
      const auto& entry = block.layout().entries()[p];
      const bool is_same =
          tensors::FlatLayout::view(outcome.before[i], entry).equal(tensors::FlatLayout::view(outcome.after[i], entry));
      EXPECT_NE(is_same, block.parameters()[p].trained == models::Trained::kYes) << entry.name;
      if (!is_same) changed += entry.end - entry.begin;
    }
  }
  EXPECT_EQ(changed, model->num_trained_parameters());
}

class FrozenTraining : public testing::TestWithParam<Choice> {};

TEST_P(FrozenTraining, ChangesWhatIsTrainedAndNotABitOfTheRest) {
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16);
    TrainingOptions options = options_with({.stage = kZero0});
    options.bf16 = bf16;
    const Outcome outcome = train(GetParam().family, GetParam().rules, {.ranks = 1, .options = options});
    expect_frozen_as_before(outcome, GetParam());
    EXPECT_LT(outcome.losses.back(), outcome.losses.front());
  }
}

TEST_P(FrozenTraining, HasTheGradientsOfTheWholeModelInTheFirstStep) {
  for (const bool recomputes : {false, true}) {
    SCOPED_TRACE(recomputes);
    TrainingOptions options = options_with({.stage = kZero0});
    options.gradient_checkpointing = recomputes;
    const Outcome all = train(GetParam().family, {}, {.ranks = 1, .options = options});
    const Outcome some = train(GetParam().family, GetParam().rules, {.ranks = 1, .options = options});
    EXPECT_EQ(all.losses.front(), some.losses.front());
    size_t compared = 0;
    for (size_t i = 0; i < some.gradients.size(); ++i) {
      for (size_t p = 0; p < some.gradients[i].size(); ++p) {
        if (!some.gradients[i][p].defined()) continue;
        EXPECT_TRUE(some.gradients[i][p].equal(all.gradients[i][p])) << "block " << i << ", parameter " << p;
        ++compared;
      }
    }
    EXPECT_GT(compared, 0U);
  }
}

struct Layout {
  std::string name;
  int ranks;
  ShardingOptions sharding;
};

std::vector<Layout> layouts() {
  std::vector<Layout> result;
  for (const int ranks : {1, 2, 4}) {
    for (const ShardingStage& stage : {kZero0, kZero1, kZero2, kZero3}) {
      result.push_back({stage.name, ranks, {.stage = stage, .share_parameters = false}});
    }
  }
  result.push_back({"zero-0 shared", 2, {.stage = kZero0}});
  result.push_back({"zero-2 shared", 4, {.stage = kZero2}});
  result.push_back({"hybrid", 4, {.stage = kHybrid, .group_size = 2, .share_parameters = false}});
  OffloadOptions disk{.optimizer = true, .folder = std::filesystem::temp_directory_path(), .window_elements = 16384};
  for (const int ranks : {1, 2}) {
    disk.parameters = false;
    result.push_back({"states on disk", ranks, {.offload = disk}});
    disk.parameters = true;
    result.push_back({"all on disk", ranks, {.stage = kZero3, .offload = disk}});
  }
  result.push_back({"hybrid, all on disk", 4, {.stage = kHybrid, .group_size = 2, .offload = disk}});
  result.push_back({"each rank a group, all on disk", 2, {.stage = kHybrid, .group_size = 1, .offload = disk}});
  disk.parameters = false;
  disk.ratio = 0.5;
  result.push_back({"half of the states on disk", 2, {.share_parameters = false, .offload = disk}});
  return result;
}

TEST_P(FrozenTraining, GivesTheSameBitsOnEveryLayout) {
  for (const auto& [bf16, master] : {std::pair{false, Precision::kFp32},
                                     {true, Precision::kFp32},
                                     {true, Precision::kBf16},
                                     {false, Precision::kFp16}}) {
    TrainingOptions options = options_with({.stage = kZero0});
    options.bf16 = bf16;
    options.fp16 = master == Precision::kFp16;
    options.master = master;
    options.accumulation = master;
    const Outcome alone = train(GetParam().family, GetParam().rules, {.ranks = 1, .options = options});
    for (const Layout& layout : layouts()) {
      SCOPED_TRACE(fmt::format("{}, {} ranks, {}", layout.name, layout.ranks, options.precision_text()));
      options.sharding = layout.sharding;
      const Outcome other = train(GetParam().family, GetParam().rules, {.ranks = layout.ranks, .options = options});
      EXPECT_EQ(alone.losses, other.losses);
      for (size_t i = 0; i < alone.after.size(); ++i) {
        EXPECT_TRUE(alone.after[i].equal(other.after[i])) << "block " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Choices, FrozenTraining, testing::ValuesIn(choices()),
                         [](const auto& info) { return info.param.name; });

TEST(FrozenUnits, HaveParametersOnly) {
  const auto model = make_model("bert");
  freeze_parameters(*model, {.freeze = "", .train_only = "*.layer.1.*"});
  for (const bool bf16 : {false, true}) {
    TrainingOptions options = options_with({.stage = kZero0});
    options.bf16 = bf16;
    comm::SelfComm comm;
    ShardedParameters parameters(*model, comm, options);
    for (size_t u = 0; u < parameters.units().size(); ++u) {
      const UnitShard& shard = parameters.unit(u);
      EXPECT_EQ(shard.is_frozen, parameters.units()[u].block != 2);
      EXPECT_EQ(shard.gradient.defined(), !shard.is_frozen);
      EXPECT_EQ(shard.states.empty(), shard.is_frozen);
      EXPECT_EQ(shard.master.is_alias_of(shard.kept), !bf16) << "only bf16 has fp32 copies, for checkpoints";
    }
  }
}

TEST(FrozenUnits, RefuseGradients) {
  const auto model = make_model("bert");
  freeze_parameters(*model, {.freeze = "", .train_only = "classifier.*"});
  comm::SelfComm comm;
  ShardedParameters parameters(*model, comm, {});
  GradientReducer reducer(*model, parameters, comm);
  reducer.begin_micro_step(0, 1);
  reducer.begin(3);
  EXPECT_THAT(error_of([&] { reducer.sink(3).accept(0, at::zeros({32, 32})); }).text,
              testing::HasSubstr("'head.dense.weight' got a gradient, but is frozen"));
}

}  // namespace
}  // namespace strake::training::frozen_training_test
