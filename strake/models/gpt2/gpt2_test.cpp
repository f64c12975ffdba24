#include "strake/models/gpt2/gpt2.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "strake/models/forward.h"
#include "strake/models/gpt2/test_config.h"
#include "strake/models/test_model.h"
#include "strake/models/weights.h"

namespace strake::models::gpt2_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// All parameters of a model in memory.
class Weights final : public ParameterSource {
 public:
  explicit Weights(const Model& model) : model_(model) {
    for (const auto& block : model.blocks()) flat.push_back(at::zeros({block->layout().numel()}));
  }
  Parameters acquire(size_t i) override {
    const Block& block = *model_.blocks()[i];
    Parameters views = block.view(flat[i], nullptr);
    for (const TiedParameter& tied : block.tied()) {
      views.push_back(model_.blocks()[tied.block]->view(flat[tied.block], nullptr)[tied.parameter]);
    }
    return views;
  }
  at::Tensor parameter(const std::string& name) const {
    for (size_t i = 0; i < flat.size(); ++i) {
      for (const auto& entry : model_.blocks()[i]->layout().entries()) {
        if (entry.name == name) return tensors::FlatLayout::view(flat[i], entry);
      }
    }
    return {};
  }

  std::vector<at::Tensor> flat;

 private:
  const Model& model_;
};

// A checkpoint of a small GPT-2, whose tensors a test may rename, drop or change before it is loaded.
class Gpt2Checkpoint : public testing::Test {
 protected:
  Gpt2Checkpoint() {
    double phase = 0;
    for (const auto& block : model_.blocks()) {
      for (const CheckpointTensor& tensor : checkpoint_tensors(*block)) {
        checkpoint_[tensor.name] = wave(tensor.shape, phase += 1);
      }
    }
  }
  Weights load() {
    tensors::write_safetensors(folder_.path() / "model.safetensors", {checkpoint_.begin(), checkpoint_.end()}, {});
    const tensors::CheckpointFiles files(folder_.path());
    Weights weights(model_);
    std::vector<std::string> initialized;
    for (size_t i = 0; i < weights.flat.size(); ++i) {
      load_block(*model_.blocks()[i], {.model = model_, .files = files, .seed = 7}, weights.flat[i], initialized);
    }
    unused_ = unused_names(model_, files);
    return weights;
  }

  Gpt2 model_{small_gpt2_config()};
  ModelFolder folder_;
  std::map<std::string, at::Tensor> checkpoint_;
  std::vector<std::string> unused_;
};

TEST_F(Gpt2Checkpoint, HasItsProjectionsTransposedButNotItsEmbeddings) {
  const Weights weights = load();
  EXPECT_EQ(checkpoint_["transformer.h.0.attn.c_attn.weight"].sizes(), (std::vector<int64_t>{8, 24}));
  EXPECT_TRUE(weights.parameter("layer.0.attention.qkv.weight")
                  .equal(checkpoint_["transformer.h.0.attn.c_attn.weight"].t().contiguous()));
  EXPECT_TRUE(weights.parameter("layer.1.feed_forward.out.weight")
                  .equal(checkpoint_["transformer.h.1.mlp.c_proj.weight"].t().contiguous()));
  EXPECT_TRUE(weights.parameter("embeddings.word").equal(checkpoint_["transformer.wte.weight"]));
  EXPECT_TRUE(unused_.empty());
}

TEST_F(Gpt2Checkpoint, ComesBackUnderItsNames) {
  const Weights weights = load();
  size_t count = 0;
  for (size_t i = 0; i < weights.flat.size(); ++i) {
    for (const auto& [name, value] : named_weights(*model_.blocks()[i], weights.flat[i])) {
      EXPECT_TRUE(value.equal(checkpoint_.at(name))) << name;
      count += 1;
    }
  }
  EXPECT_EQ(count, checkpoint_.size());
}

TEST_F(Gpt2Checkpoint, OfTheBaseModelIsFoundWithoutPrefixAndItsMasksAreNoWeights) {
  std::map<std::string, at::Tensor> base;
  for (const auto& [name, value] : checkpoint_) base[name.substr(std::string("transformer.").size())] = value;
  const at::Tensor expected = checkpoint_["transformer.h.1.mlp.c_fc.weight"].t().contiguous();
  checkpoint_ = std::move(base);
  checkpoint_["h.0.attn.bias"] = at::zeros({1, 1, 10, 10});
  checkpoint_["h.0.attn.masked_bias"] = at::zeros({1});
  checkpoint_["h.0.attn.extra"] = at::zeros({1});
  EXPECT_TRUE(load().parameter("layer.1.feed_forward.in.weight").equal(expected));
  EXPECT_THAT(unused_, ElementsAre("h.0.attn.extra"));
}

TEST_F(Gpt2Checkpoint, MayHaveItsTiedProjectionTwiceButNotAnotherOne) {
  checkpoint_["lm_head.weight"] = checkpoint_["transformer.wte.weight"].clone();
  load();
  EXPECT_TRUE(unused_.empty());
  checkpoint_["lm_head.weight"][3][4] += 1;
  EXPECT_THAT(error_text([&] { load(); }),
              HasSubstr("'lm_head.weight' differs from 'transformer.wte.weight', to which config.json ties it"));
}

TEST_F(Gpt2Checkpoint, MayHaveItsTiedProjectionOnly) {
  const at::Tensor expected = checkpoint_["transformer.wte.weight"].clone();
  checkpoint_["lm_head.weight"] = expected;
  checkpoint_.erase("transformer.wte.weight");
  EXPECT_TRUE(load().parameter("embeddings.word").equal(expected));
  EXPECT_TRUE(unused_.empty());
}

TEST_F(Gpt2Checkpoint, OfAnotherShapeIsRefused) {
  checkpoint_["transformer.h.0.attn.c_attn.weight"] = wave({24, 8}, 0);  // as a linear layer would have it
  EXPECT_THAT(error_text([&] { load(); }), HasSubstr("has shape [24, 8], but config.json makes it [8, 24]"));
}

TEST(Gpt2, CountsATiedParameterOnce) {
  const int64_t tied = Gpt2(small_gpt2_config()).num_parameters();
  EXPECT_EQ(Gpt2(small_gpt2_config({{"tie_word_embeddings", false}})).num_parameters(), tied + int64_t{11} * 8);
}

TEST(Gpt2, InitialisesWhatIsAddedToTheStreamSmaller) {
  const Gpt2 model(small_gpt2_config({{"n_embd", 64}, {"n_layer", 8}}));
  Weights weights(model);
  initialize_block(*model.blocks()[1], model.initializer_range(), 3, weights.flat[1]);
  // 12288 and 16384 values: five standard errors of the spread.
  const auto spread = [&](const char* name) { return weights.parameter(name).std().item<double>(); };
  EXPECT_NEAR(spread("layer.0.attention.qkv.weight"), 0.02, 5 * 0.02 / std::sqrt(2 * 12288));
  EXPECT_NEAR(spread("layer.0.feed_forward.out.weight"), 0.005, 5 * 0.005 / std::sqrt(2 * 16384));
}

// 2200 tokens, so that the head works in several chunks.
TEST(Gpt2, KeepsPackedDocumentsApart) {
  const Gpt2 model(small_gpt2_config({{"n_positions", 2000}, {"initializer_range", 0.3}}));
  Weights weights(model);
  for (size_t i = 0; i < weights.flat.size(); ++i) {
    initialize_block(*model.blocks()[i], model.initializer_range(), 3, weights.flat[i]);
  }
  const std::vector<int32_t> lengths{3, 1, 2000, 196};
  const tensors::PackedBatch together = packed_batch(lengths);
  const at::Tensor nll = forward(model, weights, together);
  ASSERT_EQ(nll.numel(), 2200 - 4);
  std::vector<at::Tensor> alone;
  int64_t begin = 0;
  for (const int32_t length : lengths) {
    tensors::PackedBatch batch = packed_batch({length});
    batch.input_ids = together.input_ids.narrow(0, begin, length);
    alone.push_back(forward(model, weights, batch));
    EXPECT_EQ(alone.back().numel(), model.num_targets(length));
    begin += length;
  }
  // The matrix library may add in another order for another number of rows.
  EXPECT_LT((nll - at::cat(alone)).abs().max().item<double>(), 1e-5);
  EXPECT_GT(nll.std().item<double>(), 0.1) << "equal numbers would prove nothing";
}

TEST(Gpt2, DoesNotLookAhead) {
  const Gpt2 model(small_gpt2_config({{"initializer_range", 0.3}}));
  Weights weights(model);
  for (size_t i = 0; i < weights.flat.size(); ++i) {
    initialize_block(*model.blocks()[i], model.initializer_range(), 3, weights.flat[i]);
  }
  tensors::PackedBatch batch = packed_batch({8});
  const at::Tensor before = forward(model, weights, batch);
  batch.input_ids[6] = 1 - batch.input_ids[6].item<int32_t>() % 2;
  const at::Tensor after = forward(model, weights, batch);
  EXPECT_TRUE(before.narrow(0, 0, 5).equal(after.narrow(0, 0, 5)));
  EXPECT_FALSE(before[5].equal(after[5])) << "token 6 is the sixth target";
  EXPECT_FALSE(before[6].equal(after[6])) << "token 7 is predicted from token 6 too";
}

}  // namespace
}  // namespace strake::models::gpt2_test
