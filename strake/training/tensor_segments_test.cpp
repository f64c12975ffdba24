// Which elements of a unit the optimizer takes for one tensor, and which it lets decay.
#include <gtest/gtest.h>

#include <map>

#include "strake/comm/comm.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/training/sharded_parameters.h"

namespace strake::training::tensor_segments_test {
namespace {

constexpr int64_t kHidden = 20;  // no multiple of a vector

models::SequenceClassifier small_model() {
  models::EncoderConfig config{.model_type = "bert",
                               .vocab_size = 50,
                               .hidden_size = kHidden,
                               .num_hidden_layers = 1,
                               .num_attention_heads = 2,
                               .intermediate_size = 24,
                               .max_position_embeddings = 16,
                               .type_vocab_size = 2};
  config.set_labels({"no", "yes"}, std::nullopt);
  return models::SequenceClassifier(config);
}

TrainingOptions decaying() { return {.optim = "lamb", .weight_decay = 0.5}; }

// Sizes of segments by how often they occur, of all trained units.
std::map<int64_t, int> sizes_of(ShardedParameters& parameters, bool decaying_only) {
  std::map<int64_t, int> sizes;
  for (size_t u = 0; u < parameters.units().size(); ++u) {
    for (const kernels::TensorSegment& segment : parameters.unit(u).tensors) {
      if (!decaying_only || segment.weight_decay > 0) ++sizes[segment.end - segment.begin];
    }
  }
  return sizes;
}

TEST(TensorSegments, AFusedProjectionIsThreeTensorsAsInHuggingFace) {
  const models::SequenceClassifier model = small_model();
  comm::SelfComm comm;
  ShardedParameters parameters(model, comm, decaying());
  const std::map<int64_t, int> sizes = sizes_of(parameters, false);
  EXPECT_EQ(sizes.count(3 * kHidden * kHidden), 0);
  EXPECT_EQ(sizes.at(kHidden * kHidden), 5) << "query, key, value, output, pooler";
  EXPECT_EQ(sizes.count(3 * kHidden), 0) << "biases too";
}

TEST(TensorSegments, BiasesAndNormsDecayOnlyUnderAnOptimizerOfDeepSpeed) {
  const models::SequenceClassifier model = small_model();
  comm::SelfComm comm;
  TrainingOptions options = decaying();
  ShardedParameters transformers(model, comm, options);
  EXPECT_EQ(sizes_of(transformers, true).count(kHidden), 0);
  options.configured_optimizer = options.optimizer_settings();
  ShardedParameters deepspeed(model, comm, options);
  EXPECT_EQ(sizes_of(deepspeed, true), sizes_of(deepspeed, false));
}

}  // namespace
}  // namespace strake::training::tensor_segments_test
