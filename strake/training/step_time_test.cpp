#include "strake/training/step_time.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <numeric>

#include "strake/comm/thread_comm.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/models/weights.h"
#include "strake/training/freezing.h"
#include "strake/training/stepper.h"
#include "strake/training/test_dataset.h"
#include "strake/training/training_flops.h"

namespace strake::training::step_time_test {
namespace {

constexpr int64_t kLength = 16;  // tokens of a sequence
constexpr int64_t kSequences = 2;
constexpr models::BatchShape kBatch{.tokens = kSequences * kLength,
                                    .sequences = kSequences,
                                    .squared_lengths = static_cast<double>(kSequences * kLength * kLength)};

std::unique_ptr<models::Model> bert(const FreezeRules& frozen = {}) {
  models::EncoderConfig config{.model_type = "bert",
                               .vocab_size = 1500,
                               .hidden_size = 128,
                               .num_hidden_layers = 4,
                               .num_attention_heads = 4,
                               .intermediate_size = 512,
                               .max_position_embeddings = kLength,
                               .type_vocab_size = 2};
  config.set_labels({"no", "yes"}, std::nullopt);
  auto model = std::make_unique<models::SequenceClassifier>(config);
  freeze_parameters(*model, frozen);
  return model;
}

std::unique_ptr<models::Model> gpt2() {
  return std::make_unique<models::Gpt2>(models::parse_gpt2_config({{"model_type", "gpt2"},
                                                                   {"vocab_size", 1500},
                                                                   {"n_embd", 128},
                                                                   {"n_layer", 4},
                                                                   {"n_head", 4},
                                                                   {"n_positions", kLength}},
                                                                  "test"));
}

TrainingOptions options_of(const ShardingStage& stage, int64_t accumulation = 1) {
  return {.gradient_accumulation_steps = accumulation,
          .sharding = {.stage = stage, .group_size = 2, .share_parameters = false}};
}

// Elements of a model: in all units, in the last block, and in the one that is tied.
int64_t elements(const models::Model& model) {
  const Units units(model);
  return std::accumulate(units.begin(), units.end(), int64_t{0},
                         [](int64_t sum, const Unit& unit) { return sum + unit.layout.numel(); });
}
int64_t last_elements(const models::Model& model) { return model.blocks().back()->layout().numel(); }

int64_t bytes_of(const models::Model& model, const TrainingOptions& options, int ranks = 2) {
  return communicated_bytes({.model = model, .options = options, .batch = {}, .num_ranks = ranks});
}

TEST(CommunicatedBytes, AreThoseOfRingsForEveryMicroBatch) {
  const auto model = bert();
  const int64_t numel = elements(*model);
  const auto bytes = [&](const ShardingStage& stage, Precision precision, Precision reduction = Precision::kFp32) {
    TrainingOptions options = options_of(stage, 3);
    options.bf16 = precision == Precision::kBf16;
    options.fp16 = precision == Precision::kFp16;
    options.reduction = reduction;
    return bytes_of(*model, options);
  };
  EXPECT_EQ(bytes(kZero0, Precision::kFp32), (3 + 1) * numel * 4 / 2) << "reduced for each micro-batch, gathered once";
  EXPECT_EQ(bytes(kZero2, Precision::kFp32), (3 + 1) * numel * 4 / 2);
  for (const Precision type : {Precision::kBf16, Precision::kFp16}) {
    EXPECT_EQ(bytes(kZero2, type), 3 * numel * 4 / 2 + numel * 2 / 2) << "parameters are gathered in 16 bits";
    EXPECT_EQ(bytes(kZero2, type, type), (3 + 1) * numel * 2 / 2) << "half of fp32";
    EXPECT_EQ(bytes(kZero0, Precision::kFp32, type), 3 * numel * 2 / 2 + numel * 4 / 2) << "sums are gathered in fp32";
  }
  EXPECT_EQ(bytes(kZero3, Precision::kFp32), 3 * (3 * numel - last_elements(*model)) * 4 / 2)
      << "gathered for both passes of each micro-batch, but for the last block, whose passes follow each other";
}

TEST(CommunicatedBytes, OfFrozenParametersAreThoseOfStage3) {
  const auto model = bert({.freeze = "bert.embeddings.*", .train_only = ""});
  const int64_t frozen = model->blocks()[0]->layout().numel();
  const int64_t trained = elements(*model) - frozen;
  EXPECT_EQ(bytes_of(*model, options_of(kZero0)), 2 * trained * 4 / 2);
  EXPECT_EQ(bytes_of(*model, options_of(kZero2)), 2 * trained * 4 / 2);
  EXPECT_EQ(bytes_of(*model, options_of(kZero3)), (3 * trained - last_elements(*model) + frozen) * 4 / 2)
      << "the embeddings have no backward pass";
}

TEST(CommunicatedBytes, OfTiedParametersAreThoseOfThreePasses) {
  const auto model = gpt2();
  const int64_t tied = model->blocks()[0]->layout().numel();
  EXPECT_EQ(bytes_of(*model, options_of(kZero3)), (3 * elements(*model) - last_elements(*model) + tied) * 4 / 2)
      << "the embeddings' first and last pass, and both of the head, which follow each other";
}

// Counts what the collectives of parameters and gradients move.
class CountingComm final : public comm::Comm {
 public:
  CountingComm(comm::Comm& inner, std::atomic<int64_t>& bytes) : inner_(inner), bytes_(bytes) {}
  CountingComm(std::unique_ptr<comm::Comm> inner, std::atomic<int64_t>& bytes)
      : owned_(std::move(inner)), inner_(*owned_), bytes_(bytes) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  bool is_one_process() const override { return inner_.is_one_process(); }
  bool shares_memory() const override { return inner_.shares_memory(); }
  void all_reduce(at::Tensor& values) override { inner_.all_reduce(values); }
  void reduce_scatter(const comm::Addend& full, int contributors, const tensors::ShardLayout& layout, at::Tensor& shard,
                      comm::Fold fold) override {
    count(full.values);
    inner_.reduce_scatter(full, contributors, layout, shard, fold);
  }
  void all_gather(at::Tensor& full, const tensors::ShardLayout& layout) override {
    count(full);
    inner_.all_gather(full, layout);
  }
  void broadcast(at::Tensor& values, int root) override { inner_.broadcast(values, root); }
  void send(const at::Tensor& values, int destination) override { inner_.send(values, destination); }
  void recv(at::Tensor& values, int source) override { inner_.recv(values, source); }
  void barrier() override { inner_.barrier(); }
  void check_others() override { inner_.check_others(); }
  std::shared_ptr<void> share_made(const std::function<std::shared_ptr<void>()>& make) override {
    return inner_.share_made(make);
  }
  std::unique_ptr<comm::Comm> split(int color) override {
    return std::make_unique<CountingComm>(inner_.split(color), bytes_);
  }
  void abort(ErrorKind kind, const std::string& reason) override { inner_.abort(kind, reason); }

 private:
  void count(const at::Tensor& values) { bytes_ += values.numel() * values.element_size() / size() * (size() - 1); }

  std::unique_ptr<comm::Comm> owned_;
  comm::Comm& inner_;
  std::atomic<int64_t>& bytes_;
};

// Of rank 0 in one step.
int64_t counted_bytes(const models::Model& model, const TrainingOptions& options, int ranks) {
  const int64_t per_step = ranks * options.gradient_accumulation_steps;
  const data::TokenDataset dataset = make_dataset(kSequences * per_step, kLength);
  data::GlobalStep step;
  for (int64_t m = 0; m < per_step; ++m) {
    data::MicroBatch batch(static_cast<size_t>(kSequences));
    std::iota(batch.begin(), batch.end(), m * kSequences);
    step.micro_batches.push_back(batch);
  }
  int64_t counted = 0;
  comm::run_ranks(ranks, 1, [&](comm::Comm& inner) {
    std::atomic<int64_t> bytes = 0;
    CountingComm comm(inner, bytes);
    ShardedParameters parameters(model, comm, options);
    for (size_t i = 0; i < parameters.num_blocks(); ++i) {
      at::Tensor whole = at::zeros({model.blocks()[i]->layout().numel()});
      models::initialize_block(*model.blocks()[i], 0.02, 42, whole);
      parameters.assign(i, whole);
    }
    Stepper stepper(model, parameters, comm, options);
    bytes = 0;
    stepper.run(dataset, step, {.number = 1, .learning_rate = 1e-3});
    if (comm.rank() == 0) counted = bytes;
  });
  return counted;
}

TEST(CommunicatedBytes, AreWhatAStepSends) {
  const auto frozen_below = bert({.freeze = "bert.embeddings.*,*.layer.0.*", .train_only = ""});
  const auto biases = bert({.freeze = "", .train_only = "*.bias"});
  const auto whole = bert();
  const auto tied = gpt2();
  for (const models::Model* model : {frozen_below.get(), biases.get(), whole.get(), tied.get()}) {
    for (const ShardingStage& stage : {kZero0, kZero1, kZero2, kZero3, kHybrid}) {
      for (const int64_t accumulation : {1, 2}) {
        TrainingOptions options = options_of(stage, accumulation);
        const int ranks = stage.parameters == Kept::kGroupShard ? 4 : 2;
        EXPECT_EQ(bytes_of(*model, options, ranks), counted_bytes(*model, options, ranks))
            << stage.name << " x" << accumulation;
        options.bf16 = true;
        EXPECT_EQ(bytes_of(*model, options, ranks), counted_bytes(*model, options, ranks))
            << stage.name << " x" << accumulation << " bf16";
      }
    }
  }
}

// One FLOP, byte or element takes a second, so that times are counts.
constexpr RankSpeed kUnits{
    .flops = 1, .sent_bytes = 1, .sent_bytes_in_group = 1, .memory_bytes = 1, .disk_bytes = 1, .threads = 1};

StepTime time_of(const models::Model& model, const TrainingOptions& options, const RankSpeed& speed, int ranks = 2) {
  return step_time({.model = model, .options = options, .batch = kBatch, .num_ranks = ranks}, speed);
}

TEST(StepTime, CountsArithmeticAndCommunicationOnce) {
  for (const auto& model : {bert(), gpt2()}) {
    for (const ShardingStage& stage : {kZero0, kZero2, kZero3}) {
      TrainingOptions options = options_of(stage, 3);
      const models::BatchShape work{.tokens = 3 * kBatch.tokens,
                                    .sequences = 3 * kBatch.sequences,
                                    .squared_lengths = 3 * kBatch.squared_lengths};
      EXPECT_EQ(time_of(*model, options, kUnits).arithmetic, TrainingFlops(*model)(work));
      EXPECT_EQ(time_of(*model, options, kUnits).communication, bytes_of(*model, options)) << stage.name;
      options.gradient_checkpointing = true;
      EXPECT_EQ(time_of(*model, options, kUnits).arithmetic, TrainingFlops(*model, Recomputation::kCounted)(work));
    }
  }
}

TEST(StepTime, OfOneRankHasNoCommunication) {
  const StepTime time = time_of(*bert(), options_of(kZero2), kUnits, 1);
  EXPECT_EQ(time.communication, 0);
  EXPECT_EQ(time.hidden, 0);
  EXPECT_EQ(time.total(), time.arithmetic + time.optimizer);
}

TEST(StepTime, OfThreadsThatShareParametersIsThatOfGradients) {
  const auto model = bert();
  TrainingOptions options = options_of(kZero3);
  options.sharding.share_parameters = true;
  EXPECT_EQ(time_of(*model, options, kUnits).communication, elements(*model) * 4 / 2);
}

TEST(StepTime, OfTheOptimizerIsWhatItReadsAndWrites) {
  const auto model = bert();
  const auto of_element = [&](const TrainingOptions& options) {
    return time_of(*model, options, kUnits, 1).optimizer / static_cast<double>(elements(*model));
  };
  TrainingOptions options = options_of(kZero0);
  EXPECT_EQ(of_element(options), 28 + 4) << "and the norm's look at the gradient";
  options.bf16 = true;
  EXPECT_EQ(of_element(options), 28 + 4 + 2) << "and the parameters in 16 bits";
  options.optim = "sgd";
  options.bf16 = false;
  EXPECT_EQ(of_element(options), 12 + 4);
  options.optim = "lamb";
  EXPECT_EQ(of_element(options), 28 + 4 + 16) << "everything is read once more for the norms";
  int64_t own = 0;
  for (const Unit& unit : Units(*model)) own += tensors::ShardLayout(unit.layout.numel(), 2).size(0);
  EXPECT_EQ(time_of(*model, options_of(kZero2), kUnits, 2).optimizer, static_cast<double>(own) * 32);
  EXPECT_EQ(time_of(*model, options_of(kZero0), kUnits, 2).optimizer, static_cast<double>(elements(*model)) * 32);
}

// Communication is so fast that it is done before the next block is, where that has any arithmetic: embeddings have
// none.
TEST(StepTime, HidesWhatGoesOnWhileBlocksAreAtWork) {
  const auto model = bert();
  RankSpeed fast = kUnits;
  fast.threads = 1 << 20;  // the communication thread's core is not missed
  fast.flops = 1e-6;
  const auto exposed = [&](const ShardingStage& stage) {
    const StepTime time = time_of(*model, options_of(stage), fast);
    return time.communication - time.hidden / (1 - 1.0 / fast.threads);
  };
  const auto of_block = [&](size_t i) { return static_cast<double>(model->blocks()[i]->layout().numel()) * 4 / 2; };
  const double embeddings_and_layer = of_block(0) + of_block(1);
  const double all = static_cast<double>(elements(*model)) * 4 / 2;
  const double rounding = 1e-3 * all;
  EXPECT_NEAR(exposed(kZero2), embeddings_and_layer + all, rounding) << "the last sums, and new parameters";
  EXPECT_NEAR(exposed(kZero0), embeddings_and_layer + all, rounding) << "the last sums, and the whole gradient";
  EXPECT_NEAR(exposed(kZero3), 2 * embeddings_and_layer, rounding) << "the first parameters, and the last sums";
}

TEST(StepTime, HidesNothingFromAThreadThatIsAlone) {
  const auto model = bert();
  RankSpeed speed = kUnits;
  EXPECT_EQ(time_of(*model, options_of(kZero3), speed).hidden, 0);
  speed.threads = 2;
  const double half = time_of(*model, options_of(kZero3), speed).hidden;
  EXPECT_GT(half, 0);
  speed.threads = 4;
  EXPECT_NEAR(time_of(*model, options_of(kZero3), speed).hidden, half / 2 * 3, 1e-6 * half);
}

TEST(StepTime, IsThatOfCommunicationWhereItIsSlow) {
  const auto model = bert();
  RankSpeed speed = kUnits;
  speed.threads = 1 << 20;
  speed.flops = std::numeric_limits<double>::infinity();
  const StepTime time = time_of(*model, options_of(kZero3), speed);
  EXPECT_EQ(time.arithmetic, 0);
  EXPECT_EQ(time.hidden, 0);
  EXPECT_EQ(time.total(), time.communication + time.optimizer);
}

TEST(StepTime, OfADiskIsWhatIsReadAndWritten) {
  const auto model = bert();
  const auto numel = static_cast<double>(elements(*model));
  TrainingOptions options = options_of(kZero3);
  options.sharding.offload = {.optimizer = true, .folder = "/tmp"};
  EXPECT_EQ(time_of(*model, options, kUnits, 1).disk, 16 * numel) << "two moments, in and out";
  options.sharding.offload.parameters = true;
  const double passes = 2 * numel - static_cast<double>(last_elements(*model));
  EXPECT_EQ(time_of(*model, options, kUnits, 1).disk, 24 * numel + 4 * passes);
  options.bf16 = true;
  EXPECT_EQ(time_of(*model, options, kUnits, 1).disk, 28 * numel + 2 * passes)
      << "master weights, and those of 16 bits";
  RankSpeed unknown = kUnits;
  unknown.disk_bytes = std::nullopt;
  EXPECT_EQ(time_of(*model, options, unknown, 1).disk, 0);
}

}  // namespace
}  // namespace strake::training::step_time_test
