// GradientReducer and ShardedParameters: the same bits on any number of ranks.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "strake/comm/thread_comm.h"
#include "strake/core/test_error.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/training/gradient_reducer.h"

namespace strake::training::reduction_test {
namespace {

constexpr int64_t kVocabulary = 1500;
constexpr int kMicroBatches = 7;  // no multiple of 2, 3 or 4: some ranks have nothing to do in the last micro-step

models::EncoderConfig small_config() {
  models::EncoderConfig config{.model_type = "bert",
                               .vocab_size = kVocabulary,
                               .hidden_size = 32,
                               .num_hidden_layers = 1,
                               .num_attention_heads = 2,
                               .intermediate_size = 64,
                               .max_position_embeddings = 16,
                               .type_vocab_size = 2};
  config.set_labels({"no", "yes"}, std::nullopt);
  return config;
}

// The rows of the word embeddings that micro-batch m has a gradient of: some micro-batches touch few.
std::optional<std::vector<int32_t>> rows_of(int m) {
  if (m % 2 == 0) return std::nullopt;
  std::vector<int32_t> rows;
  for (int32_t row = m; row < kVocabulary; row += 97) rows.push_back(row);
  return rows;
}

// Gradient of micro-batch m: sizes from 1e-3 to 1e3, so that another order of adding gives other bits.
at::Tensor compute_gradient(int m, size_t block, size_t parameter, at::IntArrayRef shape) {
  const int64_t count = c10::multiply_integers(shape);
  const double phase = 1000.0 * m + 100.0 * static_cast<double>(block) + static_cast<double>(parameter);
  const double size = std::pow(10.0, (m * 5) % 7 - 3);
  at::Tensor all = at::arange(count).to(at::kDouble).mul(0.37).add(phase).sin().mul(size).to(at::kFloat).reshape(shape);
  const auto rows = rows_of(m);
  if (!rows || shape[0] != kVocabulary) return all;
  at::Tensor few = at::zeros(shape);
  for (const int32_t row : *rows) few[row].copy_(all[row]);
  return few;
}

// Computed once for all layouts; nobody writes to it.
at::Tensor gradient_of(int m, size_t block, size_t parameter, at::IntArrayRef shape) {
  static std::mutex mutex;  // ranks are threads
  static std::map<std::tuple<int, size_t, size_t, std::vector<int64_t>>, at::Tensor> known;
  const std::lock_guard lock(mutex);
  at::Tensor& gradient = known[{m, block, parameter, shape.vec()}];
  if (!gradient.defined()) gradient = compute_gradient(m, block, parameter, shape);
  return gradient;
}

// What the layers of one block do in backward; embedding tables are added to in place, in two parts.
void deliver(models::GradientSink& sink, const models::Block& block, size_t block_index, int m) {
  for (size_t p = 0; p < block.parameters().size(); ++p) {
    const at::Tensor gradient = gradient_of(m, block_index, p, block.parameters()[p].shape);
    if (block.name() == "embeddings" && p == 0) {
      const auto rows = rows_of(m);
      at::Tensor target = rows ? sink.add_target(p, *rows) : sink.add_target(p, std::nullopt);
      target.narrow(0, 0, 700).add_(gradient.narrow(0, 0, 700));
      target.narrow(0, 700, 800).add_(gradient.narrow(0, 700, 800));
    } else {
      sink.accept(p, gradient);
    }
  }
}

struct Outcome {
  std::vector<at::Tensor> gradients, parameters;  // whole, by block
  double norm = 0;
};

void run_micro_step(const models::Model& model, GradientReducer& reducer, const comm::Comm& comm, int k) {
  const int contributors = std::min(comm.size(), kMicroBatches - k * comm.size());
  reducer.begin_micro_step(k, contributors);
  for (size_t i = model.blocks().size(); i-- > 0;) {
    if (comm.rank() < contributors) {
      reducer.begin(i);
      deliver(reducer.sink(i), *model.blocks()[i], i, k * comm.size() + comm.rank());
    }
    reducer.reduce(i);
  }
}

// Two optimizer steps of kMicroBatches micro-batches each.
Outcome run(int ranks, const TrainingOptions& options) {
  Outcome outcome;
  comm::run_ranks(ranks, 1, [&](comm::Comm& comm) {
    const models::SequenceClassifier model(small_config());
    ShardedParameters parameters(model, comm, options);
    for (size_t i = 0; i < parameters.num_blocks(); ++i) {
      const at::Tensor whole = at::zeros({model.blocks()[i]->layout().numel()});
      for (const auto& entry : model.blocks()[i]->layout().entries()) {
        tensors::FlatLayout::view(whole, entry).copy_(gradient_of(0, i, 9, entry.shape));
      }
      parameters.assign(i, whole);
    }
    GradientReducer reducer(model, parameters, comm, options.reduction);
    Outcome own;
    for (int64_t step = 1; step <= 2; ++step) {
      for (int k = 0; k * comm.size() < kMicroBatches; ++k) run_micro_step(model, reducer, comm, k);
      reducer.finish();
      own.norm = parameters.gradient_norm();
      parameters.update({.learning_rate = 0.01, .step = step, .gradient_scale = 1 / own.norm});
      if (step > 1) continue;
      for (size_t i = 0; i < parameters.num_blocks(); ++i) {
        own.gradients.push_back(parameters.gather_whole(i, parameters.unit(i).gradient));
      }
    }
    for (size_t i = 0; i < parameters.num_blocks(); ++i) {
      parameters.gather(i);
      own.parameters.push_back(parameters.unit(i).whole.clone());
      parameters.release(i);
    }
    if (comm.rank() == comm.size() - 1) outcome = std::move(own);
  });
  return outcome;
}

// What is on its way uses buffers that unwinding frees.
TEST(GradientReducer, ARankMayFailWhileItsGradientsAndParametersAreOnTheirWay) {
  for (int round = 0; round < 5; ++round) {
    const auto fail_in_step = [](comm::Comm& comm) {
      const models::SequenceClassifier model(small_config());
      ShardedParameters parameters(model, comm, {.sharding = {.stage = kZero3, .share_parameters = false}});
      for (size_t i = 0; i < parameters.num_blocks(); ++i) {
        parameters.assign(i, at::zeros({model.blocks()[i]->layout().numel()}));
      }
      GradientReducer reducer(model, parameters, comm, Precision::kFp32);
      run_micro_step(model, reducer, comm, 0);
      parameters.prefetch(0);
      require(comm.rank() != 0, ErrorKind::kNumeric, "rank 0 fails");
      reducer.finish();
      parameters.gather(0);
      comm.barrier();
    };
    EXPECT_EQ(error_of([&] { comm::run_ranks(2, 1, fail_in_step); }).text, "rank 0 fails");
  }
}

struct Case {
  std::string name;
  int ranks;
  ShardingOptions sharding;
};

void PrintTo(const Case& layout, std::ostream* stream) { *stream << layout.name; }

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    const std::string name = std::to_string(ranks) + "Ranks";
    cases.push_back({name + "SharedParameters", ranks, {}});
    cases.push_back({name + "Zero0", ranks, {.stage = kZero0, .share_parameters = false}});
    cases.push_back({name + "Zero1", ranks, {.stage = kZero1, .share_parameters = false}});
    cases.push_back({name + "Zero2", ranks, {.stage = kZero2, .share_parameters = false}});
    cases.push_back({name + "Zero3", ranks, {.stage = kZero3, .share_parameters = false}});
  }
  cases.push_back({"4RanksHybridPairs", 4, {.stage = kHybrid, .group_size = 2, .share_parameters = false}});
  cases.push_back(
      {"4RanksPersistentHead", 4, {.stage = kZero3, .persistence_threshold = 5000, .share_parameters = false}});
  // Windows of one chunk, so that every block has several.
  const OffloadOptions optimizer{
      .optimizer = true, .folder = std::filesystem::temp_directory_path(), .window_elements = 16384};
  OffloadOptions half = optimizer;
  half.ratio = 0.5;
  OffloadOptions all = optimizer;
  all.parameters = true;
  for (const int ranks : {1, 2}) {
    const std::string name = std::to_string(ranks) + "Ranks";
    cases.push_back({name + "StatesOnDisk", ranks, {.offload = optimizer}});
    cases.push_back({name + "Zero0StatesOnDisk", ranks, {.stage = kZero0, .offload = optimizer}});
    cases.push_back({name + "HalfOfTheStatesOnDisk", ranks, {.share_parameters = false, .offload = half}});
    cases.push_back({name + "AllOnDisk", ranks, {.stage = kZero3, .persistence_threshold = 5000, .offload = all}});
  }
  // As of GPUs: what an update needs is copied, in windows of one chunk.
  const OffloadOptions to_host{.window_elements = 16384, .optimizer_to_host = true};
  OffloadOptions half_to_host = to_host;
  half_to_host.ratio = 0.5;
  half_to_host.parameters_to_host = true;
  OffloadOptions all_to_host = to_host;
  all_to_host.parameters_to_host = true;
  for (const int ranks : {1, 2}) {
    const std::string name = std::to_string(ranks) + "Ranks";
    cases.push_back({name + "StatesOnHost", ranks, {.share_parameters = false, .offload = to_host}});
    cases.push_back({name + "HalfOnHost", ranks, {.stage = kZero3, .offload = half_to_host}});
    cases.push_back(
        {name + "AllOnHost",
         ranks,
         {.stage = kZero3, .persistence_threshold = 5000, .share_parameters = false, .offload = all_to_host}});
  }
  cases.push_back({"4RanksHybridPairsAllOnHost",
                   4,
                   {.stage = kHybrid, .group_size = 2, .share_parameters = false, .offload = all_to_host}});
  cases.push_back({"4RanksHybridPairsStatesOnDisk", 4, {.stage = kHybrid, .group_size = 2, .offload = optimizer}});
  cases.push_back({"4RanksHybridPairsAllOnDisk", 4, {.stage = kHybrid, .group_size = 2, .offload = all}});
  cases.push_back({"2RanksHybridAloneAllOnDisk", 2, {.stage = kHybrid, .group_size = 1, .offload = all}});
  cases.push_back({"3RanksHybridOneGroupAllOnDisk", 3, {.stage = kHybrid, .group_size = 3, .offload = all}});
  OffloadOptions half_of_all = all;
  half_of_all.ratio = 0.5;
  cases.push_back({"4RanksHybridPairsHalfOnDiskPersistentHead",
                   4,
                   {.stage = kHybrid,
                    .group_size = 2,
                    .persistence_threshold = 5000,
                    .share_parameters = false,
                    .offload = half_of_all}});
  return cases;
}

constexpr std::array kPrecisions{Precision::kFp32, Precision::kBf16, Precision::kFp16};

TrainingOptions options_in(Precision precision) {
  return {.weight_decay = 0.1, .bf16 = precision == Precision::kBf16, .fp16 = precision == Precision::kFp16};
}

std::string text_of(const TrainingOptions& options) {
  return fmt::format("{} {}{}, computed in {}, reduced in {}, added up in {}, masters of {}", options.optim,
                     options.optim_args, options.configured_optimizer ? " configured" : "",
                     to_string(options.precision()), to_string(options.reduction), to_string(options.accumulation),
                     to_string(options.master));
}

// Of a lone rank, computed once for all layouts.
const Outcome& run_alone(const TrainingOptions& options) {
  static std::map<std::string, Outcome> known;
  const auto [found, is_new] = known.try_emplace(text_of(options));
  if (is_new) found->second = run(1, options);
  return found->second;
}

// The norm and the updated parameters are those of a lone rank.
void expect_same_bits(TrainingOptions options, const Case& layout) {
  const std::string what = text_of(options);
  const Outcome& alone = run_alone(options);
  options.sharding = layout.sharding;
  const Outcome together = run(layout.ranks, options);
  EXPECT_GT(alone.norm, 0);
  EXPECT_EQ(alone.norm, together.norm) << what;
  for (size_t i = 0; i < alone.parameters.size(); ++i) {
    EXPECT_TRUE(alone.parameters[i].equal(together.parameters[i])) << "block " << i << " " << what;
  }
}

class Reduction : public testing::TestWithParam<Case> {};

TEST_P(Reduction, AddsMicroBatchesInTheOrderOfTheirNumber) {
  const Outcome outcome = run(GetParam().ranks, {.sharding = GetParam().sharding});
  const models::SequenceClassifier model(small_config());
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    const models::Block& block = *model.blocks()[i];
    at::Tensor expected = at::zeros({block.layout().numel()});
    for (size_t p = 0; p < block.parameters().size(); ++p) {
      at::Tensor sum = tensors::FlatLayout::view(expected, block.layout().entries()[p]);
      for (int m = 0; m < kMicroBatches; ++m) {
        const at::Tensor gradient = gradient_of(m, i, p, block.parameters()[p].shape);
        sum.copy_(m == 0 ? gradient : sum + gradient);
      }
    }
    EXPECT_TRUE(outcome.gradients[i].equal(expected)) << block.name() << ": same bits, and zeros in the gaps";
  }
}

TEST_P(Reduction, GivesTheNormAndTheUpdatedParametersTheSameBits) {
  for (const Precision precision : kPrecisions) expect_same_bits(options_in(precision), GetParam());
}

TEST_P(Reduction, InSixteenBitsGivesTheSameBits) {
  TrainingOptions options = options_in(Precision::kFp16);
  options.reduction = Precision::kBf16;
  expect_same_bits(options, GetParam());
  options.accumulation = Precision::kFp16;
  expect_same_bits(options, GetParam());
  options.reduction = Precision::kFp32;
  expect_same_bits(options, GetParam());
}

TEST_P(Reduction, UpdatesWithEveryOptimizerToTheSameBits) {
  for (const auto& [optim, arguments] : std::vector<std::pair<std::string, std::string>>{
           {"sgd", "momentum=0.9,nesterov=true"}, {"adagrad", ""}, {"lion", ""}, {"lamb", "min_coeff=0.001"}}) {
    for (const Precision master : {Precision::kFp32, Precision::kBf16}) {
      expect_same_bits({.optim = optim,
                        .optim_args = arguments,
                        .weight_decay = 0.1,
                        .bf16 = master == Precision::kBf16,
                        .accumulation = master,
                        .master = master},
                       GetParam());
    }
  }
}

TEST_P(Reduction, WithMasterWeightsOfFp16GivesTheSameBits) {
  expect_same_bits({.weight_decay = 0.1,
                    .fp16 = true,
                    .reduction = Precision::kFp16,
                    .accumulation = Precision::kFp16,
                    .master = Precision::kFp16},
                   GetParam());
}

TEST_P(Reduction, UpdatesWithAmsgradToTheSameBits) {
  for (const Precision master : {Precision::kFp32, Precision::kBf16}) {
    expect_same_bits({.weight_decay = 0.1,
                      .bf16 = master == Precision::kBf16,
                      .configured_optimizer = optim::OptimizerSettings{.amsgrad = true},
                      .accumulation = master,
                      .master = master},
                     GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Reduction, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(ReductionOrder, WouldBeSeenInTheBits) {
  at::Tensor up = at::zeros({32, 32});
  at::Tensor down = at::zeros({32, 32});
  for (int m = 0; m < kMicroBatches; ++m) {
    up.add_(gradient_of(m, 1, 0, {32, 32}));
    down.add_(gradient_of(kMicroBatches - 1 - m, 1, 0, {32, 32}));
  }
  EXPECT_FALSE(up.equal(down)) << "these gradients could not tell one order from another";
}

TEST(ReductionType, IsWhatTheGradientOfAMicroBatchIsRoundedTo) {
  const auto sum = [](Precision reduction, Precision accumulation) {
    return run(1, {.reduction = reduction, .accumulation = accumulation}).gradients[1];
  };
  const models::SequenceClassifier model(small_config());
  const models::Block& block = *model.blocks()[1];
  const auto expected = [&](at::ScalarType reduction, at::ScalarType accumulation) {
    at::Tensor flat = at::zeros({block.layout().numel()}, accumulation);
    for (size_t p = 0; p < block.parameters().size(); ++p) {
      at::Tensor total = tensors::FlatLayout::view(flat, block.layout().entries()[p]);
      for (int m = 0; m < kMicroBatches; ++m) {
        total.add_(gradient_of(m, 1, p, block.parameters()[p].shape).to(reduction));
      }
    }
    return flat.to(at::kFloat);
  };
  for (const Precision type : {Precision::kBf16, Precision::kFp16}) {
    const at::ScalarType dtype = scalar_type(type);
    EXPECT_TRUE(sum(type, Precision::kFp32).equal(expected(dtype, at::kFloat))) << to_string(type);
    EXPECT_TRUE(sum(type, type).equal(expected(dtype, dtype))) << to_string(type);
    EXPECT_TRUE(sum(Precision::kFp32, type).equal(expected(at::kFloat, dtype))) << to_string(type);
    EXPECT_FALSE(sum(type, Precision::kFp32).equal(sum(Precision::kFp32, Precision::kFp32))) << to_string(type);
  }
}

TEST(ShardedParameters, KeepTrainingStateOfTheirOwnShardOnly) {
  std::mutex mutex;
  std::vector<int64_t> kept(3);
  comm::run_ranks(3, 1, [&](comm::Comm& comm) {
    const models::SequenceClassifier model(small_config());
    ShardedParameters parameters(model, comm, {.bf16 = true});
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < parameters.num_blocks(); ++i) {
      const UnitShard& unit = parameters.unit(i);  // a block that is trained as a whole is one unit
      EXPECT_EQ(unit.whole.numel(), model.blocks()[i]->layout().numel());
      EXPECT_EQ(unit.states[0].numel(), unit.layout.size(comm.rank()));
      EXPECT_EQ(unit.gradient.numel(), unit.master.numel());
    }
    kept[comm.rank()] = parameters.unit(0).states[1].numel();
  });
  const models::SequenceClassifier model(small_config());
  EXPECT_EQ(kept[0] + kept[1] + kept[2], model.blocks()[0]->layout().numel());
  EXPECT_GT(kept[1], 0);
}

std::string reducer_error(int deliveries) {
  const models::SequenceClassifier model(small_config());
  comm::SelfComm comm;
  ShardedParameters parameters(model, comm, {});
  GradientReducer reducer(model, parameters, comm);
  reducer.begin_micro_step(0, 1);
  reducer.begin(2);
  return error_of([&] {
           const auto& head = model.blocks()[2]->parameters();
           for (int i = 0; i < deliveries; ++i) reducer.sink(2).accept(1, gradient_of(0, 2, 1, head[1].shape));
           reducer.reduce(2);
         })
      .text;
}

TEST(GradientReducer, RefusesMissingAndDoubleGradients) {
  EXPECT_THAT(reducer_error(0), testing::HasSubstr("parameter 'head.dense.weight' got no gradient"));
  EXPECT_THAT(reducer_error(2), testing::HasSubstr("parameter 'head.dense.bias' got two gradients"));
}

}  // namespace
}  // namespace strake::training::reduction_test
