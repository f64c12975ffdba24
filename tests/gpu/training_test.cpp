// Steps of training on a GPU against the same steps on the processor.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "strake/comm/nccl_comm.h"
#include "strake/comm/thread_comm.h"
#include "strake/kernels/cuda/library.h"
#include "strake/models/encoder/masked_language_model.h"
#include "strake/models/encoder/question_answerer.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/models/gpus.h"
#include "strake/models/weights.h"
#include "strake/training/device.h"
#include "strake/training/freezing.h"
#include "strake/training/stepper.h"
#include "tests/gpu/gpu.h"

namespace strake::training::training_test {
namespace {

constexpr int kSteps = 4;
constexpr int64_t kSequences = 24;
constexpr int32_t kVocabulary = 211;
constexpr int32_t kPositions = 160;

// Dropout is on: the masks are the same on every device.
models::EncoderConfig small_encoder() {
  return {.model_type = "bert",
          .vocab_size = kVocabulary,
          .hidden_size = 96,
          .num_hidden_layers = 2,
          .num_attention_heads = 3,
          .intermediate_size = 200,
          .max_position_embeddings = kPositions,
          .type_vocab_size = 2};
}

std::unique_ptr<models::Model> small_bert() {
  models::EncoderConfig config = small_encoder();
  config.set_labels({"no", "yes", "perhaps"}, std::nullopt);
  return std::make_unique<models::SequenceClassifier>(config);
}

std::unique_ptr<models::Model> small_masked() {
  const models::TokenMasking masking{.mask_token = 4, .num_tokens = kVocabulary};
  return std::make_unique<models::MaskedLanguageModel>(small_encoder(), masking);
}

std::unique_ptr<models::Model> small_gpt2() {
  const Json document{{"model_type", "gpt2"}, {"vocab_size", kVocabulary}, {"n_embd", 96}, {"n_layer", 2},
                      {"n_head", 3},          {"n_positions", kPositions}};
  return std::make_unique<models::Gpt2>(models::parse_gpt2_config(document, "config.json"));
}

std::unique_ptr<models::Model> small_finder() { return std::make_unique<models::QuestionAnswerer>(small_encoder()); }

// Sequences of 1 to kPositions - 1 tokens whose label can be learned from the first token behind the start; or of which
// some tokens are an answer.
data::TokenDataset dataset(const models::Model& model) {
  const bool finds_answers = dynamic_cast<const models::QuestionAnswerer*>(&model) != nullptr;
  data::TokenDatasetBuilder builder("test");
  for (int32_t i = 0; i < kSequences; ++i) {
    std::vector<int32_t> ids;
    for (int32_t t = 0; t < 1 + (i * 37) % (kPositions - 1); ++t) ids.push_back((7 * i + 13 * t) % kVocabulary);
    data::TokenRow row{.ids = ids, .second_begin = static_cast<int32_t>(ids.size() / 2), .label = i % 3, .row = i};
    if (finds_answers) row.label = data::TokenSpan{0, i % static_cast<int32_t>(ids.size())};
    builder.append(row);
  }
  return builder.build();
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;  // by block, fp32 on the host
};

Outcome train(const models::Model& model, const TrainingOptions& options, comm::Comm& comm) {
  const data::TokenDataset data = dataset(model);
  ShardedParameters parameters(model, comm, options);
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    at::Tensor whole = at::zeros({model.blocks()[i]->layout().numel()});
    models::initialize_block(*model.blocks()[i], 0.05, 1, whole);
    parameters.assign(i, whole);
  }
  Stepper stepper(model, parameters, comm, options);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    data::GlobalStep global;
    for (int64_t batch = 0; batch < 4; ++batch) {
      data::MicroBatch& sequences = global.micro_batches.emplace_back();
      for (int64_t i = 0; i < 3; ++i) sequences.push_back((int64_t{step} * 12 + batch * 3 + i) % kSequences);
    }
    const StepReport report = stepper.run(data, global,
                                          {.number = step + 1,
                                           .learning_rate = 1e-3,
                                           .loss_scale = options.precision() == Precision::kFp16 ? 128.0 : 1.0});
    outcome.losses.push_back(report.loss);
    outcome.norms.push_back(report.gradient_norm);
  }
  for (size_t i = 0; i < model.blocks().size(); ++i) outcome.weights.push_back(parameters.whole_weights(i));
  return outcome;
}

Outcome train_alone(const models::Model& model, const TrainingOptions& options) {
  comm::SelfComm comm;
  return train(model, options, comm);
}

void expect_same_bits(const Outcome& a, const Outcome& b, const char* what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  for (size_t i = 0; i < a.weights.size(); ++i)
    EXPECT_TRUE(a.weights[i].equal(b.weights[i])) << what << ", block " << i;
}

struct Case {
  const char* name;
  std::function<std::unique_ptr<models::Model>()> model;
};
void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }

class GpuTraining : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "skipped: no GPU";
    open_gpu();
    model_ = GetParam().model();
  }
  // SGD: its updates are in proportion to gradients, where AdamW makes full steps of what is nothing but rounding.
  static TrainingOptions options(Precision precision, bool gpu) {
    return {.gradient_accumulation_steps = 4,
            .optim = "sgd",
            .optim_args = "momentum=0.9",
            .weight_decay = 0.1,
            .bf16 = precision == Precision::kBf16,
            .fp16 = precision == Precision::kFp16,
            .gpu = gpu ? std::optional(0) : std::nullopt};
  }

  std::unique_ptr<models::Model> model_;
};

TEST_P(GpuTraining, GivesTheLossesAndWeightsOfTheProcessor) {
  // Relative; sums in another order, then as many roundings to 16 bits as the networks are deep.
  for (const auto& [precision, tolerance] :
       {std::pair(Precision::kFp32, 1e-4), std::pair(Precision::kBf16, 3e-2), std::pair(Precision::kFp16, 5e-3)}) {
    const Outcome want = train_alone(*model_, options(precision, false));
    const Outcome got = train_alone(*model_, options(precision, true));
    for (size_t i = 0; i < want.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], want.losses[i], tolerance * want.losses[i]) << to_string(precision);
      EXPECT_NEAR(got.norms[i], want.norms[i], 3 * tolerance * want.norms[i]) << to_string(precision);
    }
    for (size_t i = 0; i < want.weights.size(); ++i) {
      const double difference = at::Tensor(got.weights[i] - want.weights[i]).norm().item<double>();
      EXPECT_LE(difference, tolerance * want.weights[i].norm().item<double>()) << to_string(precision) << " " << i;
    }
  }
}

TEST_P(GpuTraining, LearnsWithOptimizersWhoseStepsAreFull) {
  for (const char* optim : {"adamw_torch", "lamb"}) {
    TrainingOptions chosen = options(Precision::kFp32, true);
    chosen.optim = optim;
    chosen.optim_args = "";
    const Outcome got = train_alone(*model_, chosen);
    chosen.gpu.reset();
    const Outcome want = train_alone(*model_, chosen);
    for (size_t i = 0; i < want.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], want.losses[i], 1e-3 * want.losses[i]) << optim;
    }
    EXPECT_LT(got.losses[2], got.losses[0]) << optim << ": the same sequences again";
  }
}

TEST_P(GpuTraining, GivesTheSameBitsInEveryRunAndLayout) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const TrainingOptions once = options(precision, true);
    const Outcome first = train_alone(*model_, once);
    expect_same_bits(first, train_alone(*model_, once), "again");
    TrainingOptions other = once;
    other.gradient_checkpointing = true;
    expect_same_bits(first, train_alone(*model_, other), "gradient_checkpointing");
    other.checkpoints_on_host = true;
    expect_same_bits(first, train_alone(*model_, other), "gradient_checkpointing in the host's memory");
    other = once;
    other.sharding = {.stage = kZero3, .share_parameters = false};
    expect_same_bits(first, train_alone(*model_, other), "zero-3");
  }
}

TEST_P(GpuTraining, GivesTheSameBitsWithStateOnTheHostAndOnDisk) {
  const OffloadOptions disk{.folder = std::filesystem::temp_directory_path(), .window_elements = 16384};
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const char* optim : {"sgd", "adamw_torch", "lamb"}) {
      TrainingOptions on_gpu = options(precision, true);
      on_gpu.optim = optim;
      on_gpu.optim_args = "";
      const Outcome first = train_alone(*model_, on_gpu);
      const auto expect_same = [&](const char* what, const ShardingStage& stage, const OffloadOptions& offload) {
        TrainingOptions other = on_gpu;
        other.sharding = {.stage = stage, .share_parameters = false, .offload = offload};
        expect_same_bits(first, train_alone(*model_, other), what);
      };
      OffloadOptions offload = disk;
      offload.parameters_to_host = true;
      expect_same("parameters on the host", kZero3, offload);
      offload = disk;
      offload.optimizer_to_host = true;
      expect_same("states on the host", kZero2, offload);
      offload.pins_windows = false;
      offload.parameters_to_host = true;
      expect_same("states and parameters on the host", kZero3, offload);
      offload.ratio = 0.5;
      offload.pins_parameters = false;
      expect_same("half of them", kZero3, offload);
      offload = disk;
      offload.optimizer = true;
      expect_same("states on disk", kZero2, offload);
      offload.parameters_to_host = true;
      expect_same("states on disk, parameters on the host", kZero3, offload);
      offload.parameters_to_host = false;
      offload.parameters = true;
      expect_same("states and parameters on disk", kZero3, offload);
    }
  }
}

TEST_P(GpuTraining, GivesTheSameBitsOnTwoRanks) {
  if (num_ranks_on_gpus() < 2) GTEST_SKIP() << "skipped: one GPU";
  const Outcome alone = train_alone(*model_, options(Precision::kFp32, true));
  for (const ShardingStage& stage : kZeroStages) {
    Outcome together;
    comm::run_ranks(2, 1, [&](comm::Comm& host) {
      TrainingOptions own = options(Precision::kFp32, true);
      own.gradient_accumulation_steps = 2;
      own.gpu = gpu_of_rank(host.rank());
      own.sharding.stage = stage;
      models::use_gpu(*own.gpu);
      const auto comm = comm::make_nccl_comm(
          {.host = host, .nccl = comm::nccl(), .cuda = kernels::cuda::library(), .device = device_of(own)});
      Outcome outcome = train(*model_, own, *comm);
      if (host.rank() == 0) together = std::move(outcome);
    });
    expect_same_bits(alone, together, stage.name);
  }
}

// The first input that is kept is then not the model's.
TEST(GpuTrainingOfAPart, TakesItsFirstInputBackFromTheHost) {
  if (!has_gpu()) GTEST_SKIP() << "skipped: no GPU";
  open_gpu();
  const auto model = small_bert();
  freeze_parameters(*model, {.freeze = "bert.embeddings.*,bert.encoder.layer.0.*"});
  TrainingOptions options{.gradient_accumulation_steps = 4, .gradient_checkpointing = true, .gpu = 0};
  const Outcome on_gpu = train_alone(*model, options);
  options.checkpoints_on_host = true;
  expect_same_bits(on_gpu, train_alone(*model, options), "inputs on the host");
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTraining,
                         testing::Values(Case{"Bert", &small_bert}, Case{"Gpt2", &small_gpt2},
                                         Case{"Masked", &small_masked}, Case{"Answers", &small_finder}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace strake::training::training_test
