#include "strake/models/block.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <set>

#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/test_model.h"

namespace strake::models::block_test {
namespace {

class TwoTensors final : public Block {
 public:
  TwoTensors() : Block("two") {
    add({.name = "two.weight", .shape = {3, 5}});
    add({.name = "two.bias", .shape = {3}});
  }
  at::Tensor forward(const Parameters&, const at::Tensor& input, const StepContext&) const override { return input; }
  PlannedTensor plan(PlannedGraph&, const PlannedTensor& input) const override { return input; }
};

TEST(BlockView, GivesEachParameterItsWindowOfTheFlatBuffer) {
  const TwoTensors block;
  ASSERT_EQ(block.layout().numel(), 64);
  const at::Tensor flat = at::arange(64).to(at::kFloat);
  RecordingSink sink({});
  const Parameters views = block.view(flat, &sink);
  ASSERT_EQ(views.size(), 2U);
  EXPECT_EQ(views[0].value.sizes(), (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(views[1].value.sizes(), (std::vector<int64_t>{3}));
  EXPECT_EQ(views[0].value[2][4].item<float>(), 14);
  EXPECT_EQ(views[1].value[0].item<float>(), 32);
  EXPECT_EQ(views[1].index, 1U);
  EXPECT_EQ(views[1].sink, &sink);
  views[1].value.fill_(-1);
  EXPECT_EQ(flat[34].item<float>(), -1) << "a view is not a copy";
  EXPECT_EQ(flat[35].item<float>(), 35);
}

TEST(BlockView, OfAnotherDtypeHasTheSameWindows) {
  const TwoTensors block;
  const Parameters views = block.view(at::arange(64).to(at::kBFloat16), nullptr);
  EXPECT_EQ(views[1].value[0].item<float>(), 32);
  EXPECT_EQ(views[0].sink, nullptr);
}

TEST(StepContext, TurnsDropoutOffInEvaluationAndAtZero) {
  const tensors::PackedBatch batch = packed_batch({2});
  EXPECT_EQ((StepContext{batch, std::nullopt}).dropout(1, 0.5).p, 0);
  const StepContext training{batch, philox_key(1, 2)};
  EXPECT_EQ(training.dropout(1, 0).p, 0);
  EXPECT_EQ(training.dropout(7, 0.5).p, 0.5F);
  EXPECT_EQ(training.dropout(7, 0.5).site, 7U);
}

TEST(SequenceClassifier, NamesEveryParameterOnceInEveryFamily) {
  for (const char* family : {"bert", "roberta", "distilbert"}) {
    const ModelFolder folder(
        small_config({{"model_type", family}, {"dim", 8}, {"n_layers", 2}, {"n_heads", 2}, {"hidden_dim", 12}}));
    const SequenceClassifier model(read_encoder_config(folder.path()));
    std::set<std::string> names, checkpoint_names;
    size_t count = 0, checkpoint_count = 0;
    for (const auto& block : model.blocks()) {
      for (const ParameterSpec& spec : block->parameters()) {
        names.insert(spec.name);
        count += 1;
        for (const std::string& name : spec.checkpoint_names) checkpoint_names.insert(name);
        checkpoint_count += spec.checkpoint_names.size();
      }
    }
    EXPECT_EQ(names.size(), count) << family;
    EXPECT_EQ(checkpoint_names.size(), checkpoint_count) << family;
  }
}

}  // namespace
}  // namespace strake::models::block_test
