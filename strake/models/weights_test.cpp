#include "strake/models/weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/test_model.h"

namespace strake::models::weights_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A small BERT and a checkpoint of it, whose tensors a test may rename, drop or change before it is written.
class Weights : public testing::Test {
 protected:
  Weights() : folder_(small_config()), config_(read_encoder_config(folder_.path())), model_(config_) {
    double phase = 0;
    for (const auto& block : model_.blocks()) {
      at::Tensor flat = at::zeros({block->layout().numel()});
      for (const auto& [name, view] : named_weights(*block, flat)) {
        view.copy_(wave(view.sizes(), phase += 1));
        checkpoint_[name] = view.contiguous().clone();
      }
    }
  }

  // Renames `from` to `to` in every name of the checkpoint.
  void rename(const std::string& from, const std::string& to) {
    std::map<std::string, at::Tensor> renamed;
    for (auto& [name, value] : checkpoint_) {
      std::string text = name;
      if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
      renamed[text] = value;
    }
    checkpoint_ = std::move(renamed);
  }

  tensors::CheckpointFiles files() const {
    tensors::write_safetensors(folder_.path() / "model.safetensors", {checkpoint_.begin(), checkpoint_.end()}, {});
    return tensors::CheckpointFiles(folder_.path());
  }

  at::Tensor load(size_t block, std::vector<std::string>& initialized) const {
    at::Tensor flat = at::full({model_.blocks()[block]->layout().numel()}, 99.0F);
    const tensors::CheckpointFiles checkpoint = files();
    load_block(*model_.blocks()[block], {.model = model_, .files = checkpoint, .seed = 7}, flat, initialized);
    return flat;
  }

  // The named parameter of a block after loading.
  at::Tensor loaded(size_t block, const std::string& name) const {
    std::vector<std::string> initialized;
    const at::Tensor flat = load(block, initialized);
    for (const auto& entry : model_.blocks()[block]->layout().entries()) {
      if (entry.name == name) return tensors::FlatLayout::view(flat, entry);
    }
    return {};
  }

  ModelFolder folder_;
  EncoderConfig config_;
  SequenceClassifier model_;
  std::map<std::string, at::Tensor> checkpoint_;
};

constexpr size_t kEmbeddings = 0, kLayer = 1, kHead = 2;
const std::string kSelf = "bert.encoder.layer.0.attention.self.";

TEST_F(Weights, StackQueriesKeysAndValuesInThisOrder) {
  const at::Tensor expected = at::cat(
      {checkpoint_[kSelf + "query.weight"], checkpoint_[kSelf + "key.weight"], checkpoint_[kSelf + "value.weight"]});
  EXPECT_TRUE(loaded(kLayer, "layer.0.attention.qkv.weight").equal(expected));
  const at::Tensor bias =
      at::cat({checkpoint_[kSelf + "query.bias"], checkpoint_[kSelf + "key.bias"], checkpoint_[kSelf + "value.bias"]});
  EXPECT_TRUE(loaded(kLayer, "layer.0.attention.qkv.bias").equal(bias));
}

TEST_F(Weights, ComeBackUnderTheirCheckpointNames) {
  std::vector<std::string> initialized;
  for (size_t i = 0; i < model_.blocks().size(); ++i) {
    for (const auto& [name, value] : named_weights(*model_.blocks()[i], load(i, initialized))) {
      EXPECT_TRUE(value.equal(checkpoint_.at(name))) << name;
    }
  }
  EXPECT_TRUE(initialized.empty());
  EXPECT_TRUE(unused_names(model_, files()).empty());
}

TEST_F(Weights, AreFoundWithoutTheModelsPrefix) {
  const at::Tensor expected = checkpoint_["bert.embeddings.word_embeddings.weight"].clone();
  rename("bert.", "");
  EXPECT_TRUE(loaded(kEmbeddings, "embeddings.word").equal(expected));
  EXPECT_TRUE(unused_names(model_, files()).empty());
}

TEST_F(Weights, AreFoundUnderGammaAndBeta) {
  const at::Tensor gamma = checkpoint_["bert.embeddings.LayerNorm.weight"].clone();
  const at::Tensor beta = checkpoint_["bert.embeddings.LayerNorm.bias"].clone();
  rename("LayerNorm.weight", "LayerNorm.gamma");
  rename("LayerNorm.bias", "LayerNorm.beta");
  EXPECT_TRUE(loaded(kEmbeddings, "embeddings.norm.weight").equal(gamma));
  EXPECT_TRUE(loaded(kEmbeddings, "embeddings.norm.bias").equal(beta));
  EXPECT_TRUE(unused_names(model_, files()).empty());
}

TEST_F(Weights, OfTheEncoderMustAllBeThere) {
  checkpoint_.erase(kSelf + "key.bias");
  std::vector<std::string> initialized;
  EXPECT_EQ(error_text([&] { load(kLayer, initialized); }),
            "configuration: the checkpoint has no tensor '" + kSelf + "key.bias'");
}

TEST_F(Weights, OfAnotherShapeAreRefused) {
  checkpoint_["bert.embeddings.word_embeddings.weight"] = wave({12, 8}, 0);
  std::vector<std::string> initialized;
  const std::string error = error_text([&] { load(kEmbeddings, initialized); });
  EXPECT_THAT(error, HasSubstr("'bert.embeddings.word_embeddings.weight' has shape [12, 8]"));
  EXPECT_THAT(error, HasSubstr("config.json makes it [11, 8]"));
  checkpoint_[kSelf + "query.bias"] = wave({24}, 0);  // as long as all three together
  EXPECT_THAT(error_text([&] { load(kLayer, initialized); }),
              HasSubstr("has shape [24], but config.json makes it [8]"));
}

TEST_F(Weights, OfIntegersAreRefused) {
  checkpoint_["bert.embeddings.LayerNorm.weight"] = at::zeros({8}, at::kLong);
  std::vector<std::string> initialized;
  EXPECT_THAT(error_text([&] { load(kEmbeddings, initialized); }), HasSubstr("has dtype I64, expected a float type"));
}

TEST_F(Weights, InHalfPrecisionAreWidened) {
  const at::Tensor half = wave({8}, 3).to(at::kBFloat16);
  checkpoint_["bert.embeddings.LayerNorm.weight"] = half;
  EXPECT_TRUE(loaded(kEmbeddings, "embeddings.norm.weight").equal(half.to(at::kFloat)));
}

TEST_F(Weights, OfAMissingHeadAreInitialValuesThatDependOnTheSeedOnly) {
  std::erase_if(checkpoint_, [](const auto& item) { return item.first.starts_with("classifier."); });
  checkpoint_["cls.predictions.bias"] = wave({11}, 0);
  std::vector<std::string> initialized;
  const at::Tensor head = load(kHead, initialized);
  EXPECT_THAT(initialized, ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(unused_names(model_, files()), ElementsAre("cls.predictions.bias"));
  at::Tensor other = at::zeros({head.numel()});
  initialize_block(*model_.blocks()[kHead], config_.initializer_range, 7, other);
  const auto weight = [&](const at::Tensor& flat) {
    return tensors::FlatLayout::view(flat, model_.blocks()[kHead]->layout().entries()[2]);
  };
  EXPECT_TRUE(weight(head).equal(weight(other)));
  initialize_block(*model_.blocks()[kHead], config_.initializer_range, 8, other);
  EXPECT_FALSE(weight(head).equal(weight(other)));
  EXPECT_EQ(loaded(kHead, "head.classifier.bias").abs().sum().item<float>(), 0);
}

TEST_F(Weights, AreInitialisedWithTheConfiguredSpread) {
  config_.vocab_size = 4000;
  const SequenceClassifier model(config_);
  at::Tensor flat = at::empty({model.blocks()[kEmbeddings]->layout().numel()});
  initialize_block(*model.blocks()[kEmbeddings], config_.initializer_range, 1, flat);
  const at::Tensor word = tensors::FlatLayout::view(flat, model.blocks()[kEmbeddings]->layout().entries()[0]);
  // 32000 values: five standard errors of the mean and of the spread.
  EXPECT_NEAR(word.mean().item<double>(), 0, 5 * 0.02 / std::sqrt(32000));
  EXPECT_NEAR(word.std().item<double>(), 0.02, 5 * 0.02 / std::sqrt(2 * 32000));
}

}  // namespace
}  // namespace strake::models::weights_test
