#include <gtest/gtest.h>

#include "strake/comm/thread_comm.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/optim/learning_rate.h"
#include "strake/training/model_files.h"
#include "strake/training/stepper.h"
#include "tests/parity/parity_case.h"

namespace strake::sharded_parity_test {
namespace {

// The run of sharded.json, made by tools/make_sharded_parity_fixtures.py with DDP, FSDP2 and DeepSpeed on two ranks.
struct ShardedRun {
  explicit ShardedRun(const std::string& name)
      : parity(name),
        dataset(parity.dataset("train.")),
        settings(read_json(parity.folder / "sharded.json", kMaxConfigBytes)),
        options(tests::training_options(settings)) {
    options.gradient_accumulation_steps = settings["gradient_accumulation_steps"];
  }
  std::unique_ptr<models::Model> model() const {
    if (parity.folder.filename() == "gpt2") {
      return std::make_unique<models::Gpt2>(models::read_gpt2_config(parity.folder));
    }
    return std::make_unique<models::SequenceClassifier>(models::read_encoder_config(parity.folder));
  }

  tests::ParityCase parity;
  data::TokenDataset dataset;
  Json settings;
  training::TrainingOptions options;
};

// Losses of all steps on two ranks.
std::vector<double> losses_at(const ShardedRun& run, const training::ShardingStage& stage) {
  training::TrainingOptions options = run.options;
  options.sharding = {.stage = stage, .share_parameters = false};
  const auto model = run.model();
  const optim::LearningRateSchedule schedule(options.schedule_options(options.max_steps));
  std::vector<double> losses;
  comm::run_ranks(run.settings["ranks"], 1, [&](comm::Comm& comm) {
    training::ShardedParameters parameters(*model, comm, options);
    training::read_model(*model, parameters, run.parity.folder);
    training::Stepper stepper(*model, parameters, comm, options);
    for (int64_t i = 0; i < options.max_steps; ++i) {
      const data::GlobalStep step{.micro_batches = run.settings["steps"][i].get<std::vector<data::MicroBatch>>(),
                                  .next = {}};
      const auto report = stepper.run(run.dataset, step, {.number = i + 1, .learning_rate = schedule.at(i)});
      if (comm.rank() == 0) losses.push_back(report.loss);
    }
  });
  return losses;
}

class ShardedParity : public testing::TestWithParam<const char*> {};

TEST_P(ShardedParity, FiftyStepsOnTwoRanksAgreeWithEveryPeerWithin1e4) {  // fp32 sums in another order
  const ShardedRun run(GetParam());
  const std::vector<double> losses = losses_at(run, training::kZero3);
  ASSERT_EQ(losses.size(), 50);
  for (const auto& [peer, expected] : run.settings["losses"].items()) {
    ASSERT_EQ(expected.size(), losses.size()) << peer;
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i].get<double>(), 1e-4) << peer << ", step " << i + 1;
    }
  }
  EXPECT_EQ(losses_at(run, training::kZero0), losses);
}

INSTANTIATE_TEST_SUITE_P(Models, ShardedParity, testing::Values("bert", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace strake::sharded_parity_test
