#include "strake/training/trainer.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "strake/comm/thread_comm.h"
#include "strake/core/test_error.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/weights.h"
#include "strake/training/test_dataset.h"
#include "strake/training/training_flops.h"

namespace strake::training::trainer_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLength = 12;
constexpr int64_t kVocabulary = 200;

models::SequenceClassifier small_model() {
  models::EncoderConfig config{.model_type = "bert",
                               .vocab_size = kVocabulary,
                               .hidden_size = 16,
                               .num_hidden_layers = 1,
                               .num_attention_heads = 2,
                               .intermediate_size = 32,
                               .max_position_embeddings = kLength,
                               .type_vocab_size = 2};
  config.set_labels({"no", "yes"}, std::nullopt);
  return models::SequenceClassifier(config);
}

TEST(RunLength, TooManyEpochsToBeCountedAreRefused) {
  const data::TokenDataset dataset = make_dataset(38, kLength, kVocabulary);
  TrainingOptions options{.max_tokens_per_batch = 4 * kLength, .num_train_epochs = 1e8};
  const Caught caught = error_of([&] { (void)run_length(options, dataset, 1); });
  EXPECT_TRUE(caught.says(ErrorKind::kUsage, "--num_train_epochs 100000000 of 38 sequences: with"));
  EXPECT_TRUE(caught.says(ErrorKind::kUsage, "give --max_steps instead"));
  options.max_steps = 7;
  EXPECT_EQ(run_length(options, dataset, 1).total_steps, 7);
  options.max_steps = -1;
  options.num_train_epochs = 100;
  EXPECT_EQ(run_length(options, dataset, 1).total_steps, 1000);
}

TEST(Trainer, KeepsTheLogOnRank0Alone) {
  const fs::path folder = fs::temp_directory_path() / ("strake_trainer_test_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const models::SequenceClassifier model = small_model();
  const data::TokenDataset dataset = make_dataset(8, kLength, kVocabulary);
  const TrainingOptions options{.per_device_train_batch_size = 2, .max_steps = 2, .logging_steps = 1};
  std::array<size_t, 2> entries{};
  comm::run_ranks(2, 1, [&](comm::Comm& comm) {
    ShardedParameters parameters(model, comm, options);
    for (size_t i = 0; i < parameters.num_blocks(); ++i) {
      at::Tensor whole = at::zeros({model.blocks()[i]->layout().numel()});
      models::initialize_block(*model.blocks()[i], 0.2, 42, whole);
      parameters.assign(i, whole);
    }
    TrainerInputs inputs{.model = model,
                         .train = dataset,
                         .training_flops = TrainingFlops(model),
                         .output_dir = folder,
                         .write_companions = [](const fs::path&) {}};
    Trainer trainer(std::move(inputs), parameters, comm, options);
    trainer.run();
    entries[static_cast<size_t>(comm.rank())] = trainer.progress().log.size();
  });
  EXPECT_THAT(entries, testing::ElementsAre(3, 0)) << "two steps and the closing one";
  fs::remove_all(folder);
}

}  // namespace
}  // namespace strake::training::trainer_test
