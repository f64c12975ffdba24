// The pass of GPUs, computed by the processor: kernels and products follow their tensors.
#include "strake/inference/device_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "strake/inference/random_model.h"

namespace strake::inference::device_pass_test {
namespace {

using models::error_text;
using testing::HasSubstr;

struct Setting {
  Precision precision = Precision::kFp32;
  Head head = SequenceHead{};
  int64_t tokens = 300;
};

std::unique_ptr<DevicePass> make_pass(const RandomModel& model, const Setting& setting) {
  const auto config = models::read_encoder_config(model.folder());
  const PrecisionPlan plan{.precision = setting.precision};
  return make_device_pass({.folder = model.folder(), .config = config, .plan = plan, .head = setting.head},
                          {.device = at::kCPU,
                           .tokens = setting.tokens,
                           .longest_sequence = kLongest,
                           .slab_of_tokens = 64,
                           .slab_of_sequences = 16});
}

Logits outputs_of(DevicePass& pass, const Engine& engine, const Texts& texts) {
  Logits outputs(static_cast<size_t>(engine.num_outputs(texts.tokens())), -1e9F);
  pass.score(texts.tokens(), outputs);
  return outputs;
}

class DevicePassOfFamily : public testing::TestWithParam<const char*> {
 protected:
  // What the engine of threads computes, and this pass's difference from it.
  float difference(const Setting& setting) const {
    Engine engine(model_.folder(), {.precision = setting.precision}, capacity(1, 500), setting.head);
    Logits expected(static_cast<size_t>(engine.num_outputs(texts_.tokens())));
    engine.score(texts_.tokens(), expected);
    const auto [least, most] = std::ranges::minmax(expected);
    EXPECT_GT(most - least, 0.3F);
    return largest_difference(outputs_of(*make_pass(model_, setting), engine, texts_), expected);
  }

  RandomModel model_{std::string(GetParam())};
  Texts texts_{100, std::string(GetParam()) == "bert", 3};
};

TEST_P(DevicePassOfFamily, ComputesWhatTheEngineOfThreadsComputes) {
  EXPECT_LT(difference({}), 1e-5F);  // fp32 sums in another order
  EXPECT_LT(difference({.precision = Precision::kBf16}), 0.1F);
}

TEST_P(DevicePassOfFamily, HasEveryHead) {
  const TokenHead of_tokens{.checkpoint_name = "classifier", .outputs = 3};
  for (const Head& head : {Head(PooledHead{}), Head(PooledHead{.length = PooledHead::Length::kOne}),
                           Head(PooledHead{.pooling = Pooling::kFirst}),
                           Head(PooledHead{.pooling = Pooling::kFirst, .length = PooledHead::Length::kOne})}) {
    EXPECT_LT(difference({.head = head}), 1e-5F) << head.index();
  }
  // RoBERTa's classifier has another name.
  if (std::string(GetParam()) == "roberta") return;
  EXPECT_LT(difference({.head = of_tokens}), 1e-5F);
}

// Of products of GPUs the bits are the same (tests/gpu/engine_test.cpp), of MKL's they are not.
TEST_P(DevicePassOfFamily, GivesASequenceTheSameWhateverTheChunksAndTheNeighbours) {
  const Engine engine(model_.folder(), Precision::kFp32, capacity(1, 100));
  const Logits expected = outputs_of(*make_pass(model_, {.tokens = 9999}), engine, texts_);
  std::vector<int64_t> order(static_cast<size_t>(texts_.count()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  order.resize(60);
  Logits reordered;
  for (const int64_t s : order) reordered.insert(reordered.end(), &expected[s * 3], &expected[s * 3] + 3);
  for (const int64_t tokens : {kLongest, int64_t{150}, int64_t{9999}}) {
    const auto pass = make_pass(model_, {.tokens = tokens});
    EXPECT_LT(largest_difference(outputs_of(*pass, engine, texts_), expected), 1e-5F) << tokens;
    EXPECT_LT(largest_difference(outputs_of(*pass, engine, texts_.in_order(order)), reordered), 1e-5F) << tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(, DevicePassOfFamily, testing::Values("bert", "roberta", "distilbert"),
                         [](const auto& family) { return std::string(family.param); });

TEST(DevicePass, ScoresNothingAtAll) {
  const RandomModel model("bert");
  const Engine engine(model.folder(), Precision::kFp32, capacity(1, 100));
  EXPECT_TRUE(outputs_of(*make_pass(model, {}), engine, Texts(0, false, 1)).empty());
}

TEST(DevicePass, TakesMemoryByItsConfigurationAlone) {
  const RandomModel model("bert");
  const Engine engine(model.folder(), Precision::kFp32, capacity(1, 100));
  const auto pass = make_pass(model, {});
  const MemoryUse before = pass->memory();
  outputs_of(*pass, engine, Texts(100, false, 3));
  EXPECT_EQ(pass->memory().activations, before.activations);
  constexpr int64_t kRows = 320;  // 300 tokens in slabs of 64
  constexpr int64_t kNumbers = 3 * 66 + 1050 + 3 + 2;
  EXPECT_EQ(before.activations, kRows * kNumbers * 4);
  EXPECT_GT(before.weights, engine.memory().weights / 2);
}

TEST(DevicePass, RefusesWhatItCannotCompute) {
  const RandomModel model("bert");
  EXPECT_THAT(error_text([&] { make_pass(model, {.precision = Precision::kInt8}); }),
              HasSubstr("int8 is computed on processors only"));
  EXPECT_THAT(error_text([&] { make_pass(model, {.tokens = kLongest - 1}); }), HasSubstr("of 59 tokens"));
  const auto folder = changed(model, "bert.encoder.layer.1.attention.self.value.bias",
                              [](at::Tensor& bias) { bias.fill_(std::nanf("")); });
  const auto config = models::read_encoder_config(folder->path());
  const PrecisionPlan plan;
  const Head head;
  EXPECT_THAT(error_text([&] {
                make_device_pass({.folder = folder->path(), .config = config, .plan = plan, .head = head},
                                 {.device = at::kCPU});
              }),
              HasSubstr("parameter 'layer.1.attention.qkv.bias' holds infinity or NaN"));
}

}  // namespace
}  // namespace strake::inference::device_pass_test
