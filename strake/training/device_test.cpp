#include "strake/training/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strake/comm/comm.h"
#include "strake/core/error.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/training/sharded_parameters.h"

namespace strake::training {
namespace {

std::string refusal(const TrainingOptions& options) {
  try {
    require_gpus_can(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Device, IsTheProcessorUnlessARankHasAGpu) {
  EXPECT_EQ(device_of({}), at::Device(at::kCPU));
  EXPECT_EQ(device_of({.gpu = 3}), at::Device(at::kCUDA, 3));
}

TEST(Device, NamesWhatGpusCannotDoYet) {
  EXPECT_EQ(refusal({.gpu = 0}), "no error");
  EXPECT_THAT(refusal({.optim = "lamb", .gpu = 0}), testing::HasSubstr("Lamb"));
  EXPECT_EQ(refusal({.sharding = {.offload = {.optimizer = true, .folder = "/tmp"}}, .gpu = 0}), "no error");
  const OffloadOptions all{.optimizer = true, .parameters = true, .folder = "/tmp"};
  EXPECT_EQ(refusal({.sharding = {.stage = kZero3, .offload = all}, .gpu = 0}), "no error");
  EXPECT_THAT(refusal({.sharding = {.stage = kHybrid, .group_size = 2, .offload = all}, .gpu = 0}),
              testing::HasSubstr("parameters on nvme are not there yet for groups of ranks"));
  EXPECT_THAT(refusal({.sharding = {.stage = kZero3, .offload = {.parameters_to_host = true}}, .gpu = 0}),
              testing::HasSubstr("offload_param to cpu needs offload_optimizer"));
}

TEST(Device, IsRefusedBeforeAnythingIsAllocatedThere) {
  models::EncoderConfig config{.model_type = "bert",
                               .vocab_size = 10,
                               .hidden_size = 8,
                               .num_hidden_layers = 1,
                               .num_attention_heads = 2,
                               .intermediate_size = 8,
                               .max_position_embeddings = 8,
                               .type_vocab_size = 2};
  config.set_labels({"no", "yes"}, std::nullopt);
  const models::SequenceClassifier model(config);
  comm::SelfComm comm;
  EXPECT_THROW(ShardedParameters(model, comm, {.optim = "lamb", .gpu = 0}), Error);
}

}  // namespace
}  // namespace strake::training
