#include "strake/models/encoder/layer.h"

#include <gtest/gtest.h>

#include "strake/models/layers/select_tokens.h"
#include "strake/models/test_model.h"

namespace strake::models::layer_test {
namespace {

struct Pass {
  at::Tensor output;  // of the tokens at `places`
  at::Tensor input_gradient;
  std::map<size_t, at::Tensor> gradients;
};

class EncoderLayer : public testing::Test {
 protected:
  EncoderLayer()
      : folder_(small_config({{"hidden_dropout_prob", 0.3}, {"attention_probs_dropout_prob", 0.2}})),
        config_(read_encoder_config(folder_.path())) {}

  // Forward and backward, with the loss a weighted sum of the outputs of tokens at `places`.
  Pass run(EncoderLayerBlock::Output kind, const at::Tensor& places) const {
    const EncoderLayerBlock block(config_, find_family("bert", "test").names,
                                  {.layer = 0, .first_site = 4, .output = kind});
    const at::Tensor flat = wave({block.layout().numel()}, 3);
    std::vector<at::Tensor> values;
    for (const Parameter& parameter : block.view(flat, nullptr)) values.push_back(parameter.value);
    RecordingSink sink(values);
    const at::Tensor input = wave({batch_.num_tokens(), 8}, 1).requires_grad_();
    at::Tensor output =
        block.forward(block.view(flat, &sink), input, {.batch = batch_, .dropout_key = philox_key(5, 2)});
    if (kind == EncoderLayerBlock::Output::kAllTokens) output = layers::select_tokens(output, places);
    output.backward(wave(output.sizes(), 2));
    return {output.detach(), input.grad(), sink.gradients};
  }

  ModelFolder folder_;
  EncoderConfig config_;
  tensors::PackedBatch batch_ = packed_batch({5, 1, 7, 2});
};

void expect_same(const Pass& some, const Pass& all) {
  EXPECT_TRUE(some.output.equal(all.output));
  EXPECT_TRUE(some.input_gradient.equal(all.input_gradient));
  ASSERT_EQ(some.gradients.size(), all.gradients.size());
  for (const auto& [parameter, gradient] : all.gradients) {
    // Sums over fewer tokens, added in another order.
    EXPECT_TRUE(some.gradients.at(parameter).allclose(gradient, 1e-5, 1e-6)) << parameter;
  }
}

TEST_F(EncoderLayer, OfFirstTokensHasTheirBitsAmongTheOthers) {
  const at::Tensor places = layers::first_places(batch_);
  const Pass first = run(EncoderLayerBlock::Output::kFirstTokens, places);
  ASSERT_EQ(first.output.sizes(), (std::vector<int64_t>{4, 8}));
  expect_same(first, run(EncoderLayerBlock::Output::kAllTokens, places));
}

TEST_F(EncoderLayer, OfMaskedTokensHasTheirBitsAmongTheOthers) {
  batch_.masked = at::tensor(std::vector<int64_t>{1, 3, 7, 11, 14});
  const Pass masked = run(EncoderLayerBlock::Output::kMaskedTokens, batch_.masked);
  ASSERT_EQ(masked.output.sizes(), (std::vector<int64_t>{5, 8}));
  expect_same(masked, run(EncoderLayerBlock::Output::kAllTokens, batch_.masked));
}

TEST_F(EncoderLayer, OfFirstTokensMasksThemByTheirSequence) {
  const tensors::PackedBatch first = layers::tokens_at(batch_, layers::first_places(batch_));
  EXPECT_TRUE(first.token_rows.equal(at::tensor(std::vector<int64_t>{100, 101, 102, 103})));
  EXPECT_TRUE(first.positions.equal(at::zeros({4}, at::kInt)));
  EXPECT_TRUE(first.offsets.equal(at::tensor(std::vector<int32_t>{0, 1, 2, 3, 4})));
}

}  // namespace
}  // namespace strake::models::layer_test
