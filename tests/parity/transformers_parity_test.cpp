#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <numeric>

#include "strake/data/collate.h"
#include "strake/inference/engine.h"
#include "strake/models/forward.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/models/weights.h"
#include "strake/optim/learning_rate.h"
#include "strake/tensors/checkpoint_files.h"
#include "strake/training/evaluator.h"
#include "strake/training/freezing.h"
#include "strake/training/model_files.h"
#include "strake/training/stepper.h"
#include "tests/parity/parity_case.h"

namespace strake::transformers_parity_test {
namespace {

using tests::ParityCase;

std::vector<int64_t> all_rows(const data::TokenDataset& dataset) {
  std::vector<int64_t> rows(dataset.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

struct Changes {
  training::FreezeRules frozen = {};
  double label_smoothing = 0;
};

std::unique_ptr<models::Model> make_model(const std::filesystem::path& folder, const Changes& changes) {
  std::unique_ptr<models::Model> model;
  if (read_json(folder / "config.json", kMaxConfigBytes)["model_type"] == "gpt2") {
    model = std::make_unique<models::Gpt2>(models::read_gpt2_config(folder), changes.label_smoothing);
  } else {
    model = std::make_unique<models::SequenceClassifier>(models::read_encoder_config(folder), changes.label_smoothing);
  }
  training::freeze_parameters(*model, changes.frozen);
  return model;
}

class Gathered final : public models::ParameterSource {
 public:
  explicit Gathered(training::ShardedParameters& parameters) : parameters_(parameters) {}
  models::Parameters acquire(size_t i) override { return parameters_.gather(i); }
  void release(size_t i) override { parameters_.release(i); }

 private:
  training::ShardedParameters& parameters_;
};

// A model in training on one rank.
struct ParityRun {
  explicit ParityRun(const ParityCase& parity, const Changes& changes = {})
      : options(parity.options()),
        model(make_model(parity.folder, changes)),
        parameters(*model, comm, options),
        stepper(*model, parameters, comm, options) {
    training::read_model(*model, parameters, parity.folder);
  }
  // Logits, or negative log-likelihoods of a language model.
  at::Tensor outputs(const data::TokenDataset& dataset) { return outputs(*model, dataset); }
  // Of another model with the same parameters.
  at::Tensor outputs(const models::Model& other, const data::TokenDataset& dataset) {
    Gathered source(parameters);
    return models::forward(other, source, data::collate(dataset, all_rows(dataset)));
  }

  training::TrainingOptions options;
  std::unique_ptr<models::Model> model;
  comm::SelfComm comm;
  training::ShardedParameters parameters;
  training::Stepper stepper;
};

// The first steps of the fixture's run, one per loss.
void expect_same_steps(ParityRun& run, const ParityCase& parity, const at::Tensor& losses, const at::Tensor& norms) {
  const data::TokenDataset dataset = parity.dataset("train.");
  const optim::LearningRateSchedule schedule(run.options.schedule_options(run.options.max_steps));
  for (int64_t i = 0; i < losses.numel(); ++i) {
    const data::GlobalStep step{.micro_batches = parity.settings["steps"][i].get<std::vector<data::MicroBatch>>(),
                                .next = {}};
    const auto report = run.stepper.run(dataset, step, {.number = i + 1, .learning_rate = schedule.at(i)});
    EXPECT_NEAR(report.loss, losses[i].item<double>(), 1e-4) << "step " << i + 1;
    EXPECT_NEAR(report.gradient_norm, norms[i].item<double>(), 1e-3 * norms[i].item<double>()) << "step " << i + 1;
  }
}

class TransformersParity : public testing::TestWithParam<const char*> {
 protected:
  ParityCase parity_{GetParam()};
  std::string output_name_ = parity_.expected.tensors().contains("nll") ? "nll" : "logits";
};

TEST_P(TransformersParity, OutputsAgreeWithin1e5) {  // fp32 rounding in another order of summation
  ParityRun run(parity_);
  const at::Tensor outputs = run.outputs(parity_.dataset(""));
  EXPECT_LT(largest_difference(outputs, parity_.expected.read(output_name_)), 1e-5);
}

TEST_P(TransformersParity, EveryGradientAgreesWithin1e4) {
  const data::TokenDataset dataset = parity_.dataset("");
  ParityRun run(parity_);
  const data::GlobalStep step{.micro_batches = {all_rows(dataset)}, .next = {}};
  const auto report = run.stepper.run(dataset, step, {.number = 1, .learning_rate = 1e-30});
  EXPECT_NEAR(report.loss, parity_.expected.read("loss")[0].item<double>(), 1e-5);
  for (size_t i = 0; i < run.parameters.num_blocks(); ++i) {
    const auto& block = *run.model->blocks()[i];
    for (const auto& [name, gradient] : models::named_weights(block, run.parameters.unit(i).gradient)) {
      const at::Tensor expected = parity_.expected.read("gradient." + name);
      // Relative to the tensor; the absolute part is for gradients that are zero but for rounding (key biases).
      const double scale = expected.abs().max().item<double>();
      EXPECT_LT(largest_difference(gradient, expected), 1e-4 * scale + 1e-7) << name;
    }
  }
}

TEST_P(TransformersParity, TwentyStepsOfTrainingAgreeWithin1e4) {
  ParityRun run(parity_);
  const at::Tensor losses = parity_.expected.read("train.losses");
  ASSERT_EQ(losses.numel(), run.options.max_steps);
  expect_same_steps(run, parity_, losses, parity_.expected.read("train.gradient_norms"));
  const data::TokenDataset six = parity_.dataset("");
  EXPECT_LT(largest_difference(run.outputs(six), parity_.expected.read("train.final_" + output_name_)), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Families, TransformersParity,
                         testing::Values("bert", "bert_regression", "bert_multi_label", "roberta", "distilbert", "gpt2",
                                         "gpt2_untied"),
                         [](const auto& info) { return std::string(info.param); });

// Ten steps of the run with `changes`, whose expectations are in `name`.safetensors.
void expect_same_training(const ParityCase& parity, const std::string& name, const Changes& changes) {
  const tensors::SafetensorsFile expected(parity.folder / (name + ".safetensors"));
  ParityRun run(parity, changes);
  expect_same_steps(run, parity, expected.read("losses"), expected.read("gradient_norms"));
  const std::string output = expected.tensors().contains("final_nll") ? "final_nll" : "final_logits";
  const auto plain = make_model(parity.folder, {});  // does not smooth its losses
  EXPECT_LT(largest_difference(run.outputs(*plain, parity.dataset("")), expected.read(output)), 1e-3);
}

class TrainingParity : public testing::TestWithParam<const char*> {
 protected:
  Json facts(const char* name) const { return read_json(parity_.folder / name, kMaxConfigBytes); }

  ParityCase parity_{GetParam()};
};

TEST_P(TrainingParity, OfAPartAgreesWithin1e4) {
  const auto patterns = facts("frozen.json")["freeze"].get<std::vector<std::string>>();
  expect_same_training(parity_, "frozen",
                       {.frozen = {.freeze = fmt::format("{}", fmt::join(patterns, ",")), .train_only = ""}});
}

TEST_P(TrainingParity, WithSmoothedLabelsAgreesWithin1e4) {
  expect_same_training(parity_, "smoothed", {.label_smoothing = facts("smoothed.json")["label_smoothing_factor"]});
}

INSTANTIATE_TEST_SUITE_P(Families, TrainingParity, testing::Values("roberta", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

class EngineParity : public testing::TestWithParam<const char*> {};

TEST_P(EngineParity, LogitsAgreeWithin1e5) {  // fp32 rounding in another order of summation
  const ParityCase parity(GetParam());
  const data::TokenDataset dataset = parity.dataset("");
  std::vector<int32_t> ids;
  std::vector<int32_t> second_begin;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    ids.insert(ids.end(), dataset.tokens(i).begin(), dataset.tokens(i).end());
    second_begin.push_back(dataset.second_begin(i));
  }
  inference::Engine engine(parity.folder, inference::Precision::kFp32, {.threads = 2, .longest_sequence = 60});
  const at::Tensor expected = parity.expected.read("logits");
  at::Tensor logits = at::zeros_like(expected);
  engine.score({.ids = ids, .offsets = dataset.offsets(), .second_begin = second_begin},
               {logits.mutable_data_ptr<float>(), static_cast<size_t>(logits.numel())});
  EXPECT_LT(largest_difference(logits, expected), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, EngineParity,
                         testing::Values("bert", "bert_regression", "bert_multi_label", "roberta", "distilbert"),
                         [](const auto& info) { return std::string(info.param); });

TEST(BaseCheckpoint, GetsANewHeadAndKeepsItsPooler) {
  const ParityCase parity("bert_base");
  models::EncoderConfig config = models::read_encoder_config(parity.folder);
  config.set_labels({"no", "yes"}, std::nullopt);
  const models::SequenceClassifier model(config);
  const tensors::CheckpointFiles files(parity.folder);
  std::vector<std::string> initialized;
  for (const auto& block : model.blocks()) {
    at::Tensor flat = at::zeros({block->layout().numel()});
    models::load_block(*block, {.model = model, .files = files, .seed = 7}, flat, initialized);
  }
  EXPECT_EQ(initialized, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  EXPECT_TRUE(models::unused_names(model, files).empty());
}

}  // namespace
}  // namespace strake::transformers_parity_test
