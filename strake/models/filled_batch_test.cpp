// A batch that was filled up gives the losses and gradients of the one it was made from.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/models/gpt2/test_config.h"
#include "strake/models/test_model.h"
#include "strake/models/weights.h"

namespace strake::models::filled_batch_test {
namespace {

struct Pass {
  double loss;
  std::vector<std::map<size_t, at::Tensor>> gradients;  // by block
};

// Dropout is on: counters of dropout are those of tokens, whatever lies behind them.
Pass train(const Model& model, const tensors::PackedBatch& batch) {
  const StepContext context{.batch = batch, .dropout_key = philox_key(5, 2), .loss_divisor = 3};
  std::vector<std::unique_ptr<RecordingSink>> sinks;
  at::Tensor activations;
  for (const auto& block : model.blocks()) {
    at::Tensor flat = at::zeros({block->layout().numel()});
    initialize_block(*block, 0.3, 3, flat);
    std::vector<at::Tensor> values;
    for (const Parameter& parameter : block->view(flat, nullptr)) values.push_back(parameter.value);
    sinks.push_back(std::make_unique<RecordingSink>(values));
    activations = block->forward(block->view(flat, sinks.back().get()), activations, context);
  }
  const at::Tensor loss = model.loss(activations, batch.labels, context.loss_divisor);
  loss.backward();
  Pass result{.loss = loss.item<double>(), .gradients = {}};
  for (const auto& sink : sinks) result.gradients.push_back(sink->gradients);
  return result;
}

void expect_same(const Model& model) {
  tensors::PackedBatch batch = packed_batch({5, 1, 7, 3});  // column sums add four tokens at a time
  batch.labels = at::tensor(std::vector<int64_t>{1, 0, 1, 1});
  const Pass want = train(model, batch);
  for (const int64_t tokens : {32, 2048}) {  // the second one more than logits are computed of at a time
    const tensors::PackedBatch filled = tensors::filled_up(batch, tokens);
    ASSERT_EQ(filled.num_tokens(), tokens);
    ASSERT_EQ(filled.num_sequences(), 5);
    const Pass got = train(model, filled);
    EXPECT_EQ(got.loss, want.loss);
    for (size_t i = 0; i < want.gradients.size(); ++i) {
      for (const auto& [parameter, gradient] : want.gradients[i]) {
        EXPECT_TRUE(got.gradients[i].at(parameter).equal(gradient)) << "block " << i << ", parameter " << parameter;
      }
    }
  }
}

TEST(FilledBatch, TrainsAClassifierAlike) {
  for (const char* type : {"bert", "roberta"}) {
    const ModelFolder folder(small_config({{"model_type", type},
                                           {"num_hidden_layers", 2},
                                           {"hidden_dropout_prob", 0.3},
                                           {"attention_probs_dropout_prob", 0.2}}));
    EncoderConfig config = read_encoder_config(folder.path());
    config.set_labels({"no", "yes"}, std::nullopt);
    expect_same(SequenceClassifier(config));
  }
}

TEST(FilledBatch, TrainsALanguageModelAlike) { expect_same(Gpt2(small_gpt2_config({{"tie_word_embeddings", false}}))); }

TEST(FilledBatch, IsTheBatchWhereNothingIsMissing) {
  const tensors::PackedBatch batch = packed_batch({5, 3});
  EXPECT_TRUE(tensors::filled_up(batch, 8).input_ids.is_same(batch.input_ids));
  EXPECT_EQ(tensors::filled_up(batch, 1).num_sequences(), 2);
}

}  // namespace
}  // namespace strake::models::filled_batch_test
