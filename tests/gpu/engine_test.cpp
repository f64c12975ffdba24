// Scoring on a GPU against the same on the processor, and how fast it is: printed, never asserted.
#include "strake/inference/engine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "strake/inference/random_model.h"
#include "tests/gpu/gpu.h"

namespace strake::inference::engine_test {
namespace {

using models::error_text;
using testing::HasSubstr;

Capacity on_gpu(int64_t tokens) { return {.tokens_at_a_time = tokens, .longest_sequence = kLongest, .gpu = 0}; }

struct Setting {
  Precision precision = Precision::kFp32;
  Head head = SequenceHead{};
};

Logits outputs_of(const RandomModel& model, const Setting& setting, const Capacity& where, const Texts& texts) {
  Engine engine(model.folder(), {.precision = setting.precision}, where, setting.head);
  Logits outputs(static_cast<size_t>(engine.num_outputs(texts.tokens())), -1e9F);
  engine.score(texts.tokens(), outputs);
  return outputs;
}

// Of numbers, and of how many of three labels another one is the largest.
struct Difference {
  float largest = 0;
  double classes = 0;
};
Difference difference(const Logits& a, const Logits& b) {
  Difference found;
  for (size_t i = 0; i < a.size(); ++i) found.largest = std::max(found.largest, std::abs(a[i] - b[i]));
  const auto best = [](const float* logits) { return std::max_element(logits, logits + 3) - logits; };
  for (size_t i = 0; i + 2 < a.size(); i += 3) found.classes += best(&a[i]) != best(&b[i]) ? 1 : 0;
  found.classes *= 3.0 / static_cast<double>(a.size());
  return found;
}

class GpuEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "skipped: no GPU";
    open_gpu();
  }
};

class GpuEngineOfFamily : public GpuEngine, public testing::WithParamInterface<const char*> {
 protected:
  RandomModel model_{std::string(GetParam())};
  Texts texts_{700, std::string(GetParam()) == "bert", 3};
};

TEST_P(GpuEngineOfFamily, ComputesWhatTheProcessorComputes) {
  const Logits expected = outputs_of(model_, {}, capacity(2, 1000), texts_);
  EXPECT_LT(difference(outputs_of(model_, {}, on_gpu(9000), texts_), expected).largest, 2e-5F);
  const Difference rounded = difference(outputs_of(model_, {.precision = Precision::kBf16}, on_gpu(9000), texts_),
                                        outputs_of(model_, {.precision = Precision::kBf16}, capacity(2, 1000), texts_));
  EXPECT_LT(rounded.largest, 0.15F);
  EXPECT_LT(rounded.classes, 0.03);  // of random weights, whose logits are near each other
  for (const Head& head : {Head(PooledHead{}), Head(PooledHead{.length = PooledHead::Length::kOne}),
                           Head(PooledHead{.pooling = Pooling::kFirst, .length = PooledHead::Length::kOne})}) {
    EXPECT_LT(difference(outputs_of(model_, {.head = head}, on_gpu(9000), texts_),
                         outputs_of(model_, {.head = head}, capacity(2, 1000), texts_))
                  .largest,
              2e-5F);
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuEngineOfFamily, testing::Values("bert", "roberta", "distilbert"),
                         [](const auto& family) { return std::string(family.param); });

// Of the shape of bert-base's layers, so that the library has the choice that it has there.
TEST_F(GpuEngine, GivesASequenceTheSameBitsWhateverTheChunksAndTheNeighbours) {
  const RandomModel model("bert", {{"hidden_size", 768}, {"num_attention_heads", 12}, {"intermediate_size", 3072}});
  const Texts texts(2000, true, 3);
  std::vector<int64_t> order(static_cast<size_t>(texts.count()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  order.resize(1100);
  const Head heads[] = {SequenceHead{}, PooledHead{.length = PooledHead::Length::kOne},
                        TokenHead{.checkpoint_name = "classifier", .outputs = 3}};
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const Head& head : heads) {
      const Setting setting{precision, head};
      const Logits expected = outputs_of(model, setting, on_gpu(100'000), texts);
      EXPECT_EQ(outputs_of(model, setting, on_gpu(100), texts), expected);
      EXPECT_EQ(outputs_of(model, setting, on_gpu(10'000), texts), expected);
      if (std::holds_alternative<TokenHead>(head)) continue;
      const Logits shuffled = outputs_of(model, setting, on_gpu(20'000), texts.in_order(order));
      const size_t width = expected.size() / static_cast<size_t>(texts.count());
      Logits reordered;
      for (const int64_t s : order) {
        const auto begin = expected.begin() + s * static_cast<int64_t>(width);
        reordered.insert(reordered.end(), begin, begin + static_cast<int64_t>(width));
      }
      EXPECT_EQ(shuffled, reordered);
    }
  }
}

TEST_F(GpuEngine, RefusesWhatItCannotCompute) {
  const RandomModel model("bert");
  EXPECT_THAT(error_text([&] { Engine(model.folder(), Precision::kInt8, on_gpu(100)); }),
              HasSubstr("int8 is computed on processors only"));
  Capacity elsewhere = on_gpu(100);
  elsewhere.gpu = 4096;
  EXPECT_THAT(error_text([&] { Engine(model.folder(), Precision::kFp32, elsewhere); }),
              HasSubstr("GPU 4096: this machine has"));
}

// BERT-base and MiniLM's six layers; sequences of so many tokens, 0: of 1 to 60, 22 in the mean, as reviews have.
struct Timed {
  const char* name;
  int64_t hidden, layers;
  int64_t length;
};
void PrintTo(const Timed& timed, std::ostream* stream) { *stream << timed.name; }

constexpr size_t kRounds = 7;

class GpuScoringTime : public GpuEngine, public testing::WithParamInterface<Timed> {};

Texts texts_of(int64_t length) {
  constexpr int64_t kTokens = 200'000;
  if (length == 0) return {kTokens / 22, false, 3};
  Texts texts(0, false, 0);
  for (int64_t s = 0; s < kTokens / length; ++s) {
    for (int64_t i = 0; i < length; ++i) texts.ids.push_back(static_cast<int32_t>((7 * s + 13 * i) % 211));
    texts.offsets.push_back(std::ssize(texts.ids));
    texts.second_begin.push_back(static_cast<int32_t>(length));
  }
  return texts;
}

TEST_P(GpuScoringTime, OfTables) {
  const Timed& timed = GetParam();
  const RandomModel model("bert", {{"hidden_size", timed.hidden},
                                   {"num_attention_heads", 12},
                                   {"num_hidden_layers", timed.layers},
                                   {"intermediate_size", 4 * timed.hidden},
                                   {"max_position_embeddings", 512}});
  const Texts texts = texts_of(timed.length);
  Logits outputs(static_cast<size_t>(texts.count() * 3));
  for (const Precision precision : {Precision::kBf16, Precision::kFp32}) {
    Engine engine(model.folder(), precision, {.tokens_at_a_time = 65536, .longest_sequence = 512, .gpu = 0});
    std::vector<double> seconds;
    for (size_t i = 0; i < kRounds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      engine.score(texts.tokens(), outputs);
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::ranges::sort(seconds);
    const double median = seconds[kRounds / 2];
    const double rate = static_cast<double>(texts.ids.size()) / median;
    const double flops = 24.0 * static_cast<double>(timed.layers * timed.hidden * timed.hidden);
    fmt::print("{}_{}: {:.1f} ms, {:.0f} sequences/s, {:.0f} tokens/s, {:.0f} TFLOP/s in products\n", timed.name,
               to_string(precision), median * 1e3, static_cast<double>(texts.count()) / median, rate,
               rate * flops / 1e12);
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuScoringTime,
                         testing::Values(Timed{"bert_base_reviews", 768, 12, 0}, Timed{"bert_base_128", 768, 12, 128},
                                         Timed{"bert_base_512", 768, 12, 512}, Timed{"minilm_reviews", 384, 6, 0}),
                         [](const auto& timed) { return std::string(timed.param.name); });

}  // namespace
}  // namespace strake::inference::engine_test
