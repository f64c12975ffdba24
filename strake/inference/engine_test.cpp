#include "strake/inference/engine.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <random>

#include "strake/core/threads.h"
#include "strake/inference/random_model.h"
#include "strake/models/forward.h"
#include "strake/tensors/tracked_memory.h"

namespace {

std::atomic<int64_t> allocations{0};

void* counted(size_t bytes, size_t alignment) {
  ++allocations;
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Not inlined: GCC would take free() for a mistake where it sees the operator new beside it.
[[gnu::noinline]] void release(void* memory) { std::free(memory); }

}  // namespace

// Every allocation of this program by C++ code is counted.
void* operator new(size_t bytes) { return counted(bytes, 16); }
void* operator new[](size_t bytes) { return counted(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<size_t>(alignment)); }
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { release(memory); }

namespace strake::inference::engine_test {
namespace {

using models::error_text;
using models::ModelFolder;
using testing::AllOf;
using testing::HasSubstr;

float spread(const Logits& logits) {
  const auto [least, most] = std::ranges::minmax(logits);
  return most - least;
}

// What the model's blocks, which training uses, make of the same texts.
Logits logits_of_blocks(const RandomModel& random, const Texts& texts) {
  class Values final : public models::ParameterSource {
   public:
    explicit Values(const RandomModel& random) : random_(random) {}
    models::Parameters acquire(size_t i) override {
      return random_.model().blocks()[i]->view(random_.flats()[i], nullptr);
    }

   private:
    const RandomModel& random_;
  };
  std::vector<int32_t> types, positions, offsets{0};
  for (int64_t s = 0; s < texts.count(); ++s) {
    for (int32_t i = 0; i < texts.tokens().length(s); ++i) {
      positions.push_back(i);
      types.push_back(i >= texts.second_begin[s] ? 1 : 0);
    }
    offsets.push_back(static_cast<int32_t>(texts.offsets[s + 1]));
  }
  const tensors::PackedBatch batch{.input_ids = at::tensor(texts.ids),
                                   .token_type_ids = at::tensor(types),
                                   .positions = at::tensor(positions),
                                   .token_rows = at::zeros({std::ssize(types)}, at::kLong),
                                   .offsets = at::tensor(offsets),
                                   .labels = {}};
  Values values(random);
  const at::Tensor logits = models::forward(random.model(), values, batch).contiguous();
  return {logits.const_data_ptr<float>(), logits.const_data_ptr<float>() + logits.numel()};
}

class EngineOfFamily : public testing::TestWithParam<const char*> {
 protected:
  RandomModel model_{std::string(GetParam())};
  Texts texts_{100, std::string(GetParam()) == "bert", 3};
};

TEST_P(EngineOfFamily, ComputesWhatTheBlocksOfTrainingCompute) {
  const Logits logits = score(model_, Precision::kFp32, capacity(2, 300), texts_);
  const Logits expected = logits_of_blocks(model_, texts_);
  ASSERT_GT(spread(expected), 0.5F);
  EXPECT_LT(largest_difference(logits, expected), 1e-5F);  // fp32 sums in another order
}

TEST_P(EngineOfFamily, GivesASequenceTheSameBitsWhateverTheThreadsTheChunksAndTheNeighbours) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kInt8}) {
    const Logits expected = score(model_, precision, capacity(1, 100'000), texts_);
    for (const auto& [threads, tokens] : {std::pair{1, 1}, {1, 77}, {2, 300}, {3, 150}, {2, 100'000}}) {
      EXPECT_EQ(score(model_, precision, capacity(threads, tokens), texts_), expected) << threads << " " << tokens;
    }
    std::vector<int64_t> order(static_cast<size_t>(texts_.count()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
    order.resize(60);
    const Logits shuffled = score(model_, precision, capacity(2, 200), texts_.in_order(order));
    for (size_t i = 0; i < order.size(); ++i) {
      for (int64_t label = 0; label < 3; ++label) {
        EXPECT_EQ(shuffled[i * 3 + static_cast<size_t>(label)], expected[static_cast<size_t>(order[i] * 3 + label)]);
      }
    }
  }
}

// Threads that share one text, or a few, and those that share chunks of them one after the other.
TEST_P(EngineOfFamily, GivesAFewSequencesTheSameBitsWhenThreadsShareThem) {
  const Texts all(30, std::string(GetParam()) == "bert", 5);
  std::vector<Texts> texts;
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{0}, {4}, {17, 1}, {2, 17, 0}}) {
    texts.push_back(all.in_order(order));
  }
  const auto outputs = [&](const Head& head, Precision precision, const Capacity& capacity) {
    Engine engine(model_.folder(), {.precision = precision}, capacity, head);
    std::vector<Logits> results;
    for (const Texts& few : texts) {
      results.emplace_back(static_cast<size_t>(engine.num_outputs(few.tokens())));
      engine.score(few.tokens(), results.back());
    }
    return results;
  };
  std::vector<Head> heads{SequenceHead{}, PooledHead{}};
  if (std::string(GetParam()) != "roberta") {  // whose layer of that name is none
    heads.emplace_back(TokenHead{.checkpoint_name = "classifier", .outputs = 3});
  }
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kInt8}) {
    for (const Head& head : heads) {
      const std::vector<Logits> expected = outputs(head, precision, capacity(1, 300));
      for (const auto& [threads, at_a_time] : {std::pair{2, 300}, {3, 70}, {4, 300}, {7, 50}}) {
        EXPECT_EQ(outputs(head, precision, capacity(threads, at_a_time)), expected)
            << to_string(precision) << ", head " << head.index() << ", " << threads << " threads";
      }
    }
  }
}

int64_t same_classes(const Logits& a, const Logits& b) {
  int64_t same = 0;
  for (auto x = a.begin(), y = b.begin(); x != a.end(); x += 3, y += 3) {
    same += std::max_element(x, x + 3) - x == std::max_element(y, y + 3) - y ? 1 : 0;
  }
  return same;
}

// Weights and activations have 8 bits of significand: each of about ten roundings on the way through two layers has a
// relative error of up to 2^-9, of numbers that add up to the logits.
TEST_P(EngineOfFamily, InBf16IsNearAndChoosesTheSameClassUnlessTheBestTwoAreNear) {
  const Logits exact = score(model_, Precision::kFp32, capacity(2, 300), texts_);
  const Logits near = score(model_, Precision::kBf16, capacity(2, 300), texts_);
  const float difference = largest_difference(exact, near);
  EXPECT_LT(difference, 0.02F * spread(exact));
  EXPECT_GT(difference, 1e-5F) << "else it was not computed in bf16";
  EXPECT_GE(same_classes(exact, near), 97);
}

// Eight products whose two operands are off by up to 1/254 of the largest number in their row or column.
TEST_P(EngineOfFamily, InInt8IsNearAndChoosesTheSameClassUnlessTheBestTwoAreNear) {
  const Logits exact = score(model_, Precision::kFp32, capacity(2, 300), texts_);
  const Logits near = score(model_, Precision::kInt8, capacity(2, 300), texts_);
  EXPECT_LT(largest_difference(exact, near), 0.04F * spread(exact));
  EXPECT_NE(near, score(model_, Precision::kBf16, capacity(2, 300), texts_)) << "else it was not computed in int8";
  EXPECT_GE(same_classes(exact, near), 95);
}

std::vector<LinearName> all_linears(int64_t layers) {
  std::vector<LinearName> names;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int linear = 0; linear < kLinears; ++linear) names.push_back({layer, static_cast<Linear>(linear)});
  }
  return names;
}

TEST_P(EngineOfFamily, ComputesEachLinearInBf16ThatIsToStayThere) {
  const Logits bf16 = score(model_, Precision::kBf16, capacity(2, 300), texts_);
  const Logits int8 = score(model_, Precision::kInt8, capacity(2, 300), texts_);
  const auto with = [&](std::vector<LinearName> in_bf16) {
    Engine engine(model_.folder(), {.precision = Precision::kInt8, .bf16_linears = std::move(in_bf16)},
                  capacity(2, 300));
    return score(engine, texts_);
  };
  EXPECT_EQ(with(all_linears(2)), bf16);
  Engine switchable(model_.folder(), {.precision = Precision::kInt8, .forms = PrecisionPlan::Forms::kBoth},
                    capacity(2, 300));
  EXPECT_EQ(score(switchable, texts_), int8);
  for (const LinearName& name : all_linears(2)) {
    const Logits one = with({name});
    EXPECT_NE(one, int8) << name.text();
    EXPECT_NE(one, bf16) << name.text();
    switchable.keep_in_bf16(std::span(&name, 1));
    EXPECT_EQ(score(switchable, texts_), one) << name.text();
  }
}

TEST_P(EngineOfFamily, AllocatesNothingWhileItScores) {
  tensors::track_tensor_memory();
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kInt8}) {
    Engine engine(model_.folder(), precision, capacity(2, 200));
    Logits logits(static_cast<size_t>(texts_.count()) * 3);
    engine.score(texts_.tokens(), logits);  // the thread team comes into being
    const Texts others(80, false, 11);
    const Texts one(1, false, 12);
    const int64_t before = allocations;
    ASSERT_GT(before, 0) << "else nobody counts";
    tensors::reset_peak_tracked_bytes();
    const int64_t tensors_before = tensors::tracked_bytes();
    engine.score(others.tokens(), std::span(logits).first(240));
    engine.score(one.tokens(), std::span(logits).first(3));
    EXPECT_EQ(allocations - before, 0);
    EXPECT_EQ(tensors::peak_tracked_bytes(), tensors_before);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineOfFamily, testing::Values("bert", "roberta", "distilbert"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Engine, TakesMemoryByItsConfigurationAlone) {
  const RandomModel model("bert");
  const auto memory = [&](Precision precision, const Capacity& capacity) {
    return Engine(model.folder(), precision, capacity).memory();
  };
  const MemoryUse one = memory(Precision::kFp32, capacity(1, 200));
  const MemoryUse three = memory(Precision::kFp32, capacity(3, 200));
  EXPECT_EQ(three.weights, one.weights);
  EXPECT_EQ(three.activations, 3 * one.activations);
  // 259 tokens of 3 x 66 + 1050 numbers, and no more than half as much for all the rest.
  const int64_t rows = int64_t{259} * (3 * 66 + 1050) * 4;
  EXPECT_GT(one.activations, rows);
  EXPECT_LT(one.activations, rows * 3 / 2);
  EXPECT_GE(one.weights, model.model().num_parameters() * 4);
}

TEST(Engine, TakesAByteLessForAWeightInInt8) {
  // AMX fills depths up to a multiple of 64.
  const RandomModel model("bert", {{"hidden_size", 192}, {"intermediate_size", 1024}});
  const auto weights = [&](Precision precision) {
    return Engine(model.folder(), precision, capacity(1, 200)).memory().weights;
  };
  const int64_t saved = weights(Precision::kBf16) - weights(Precision::kInt8);
  EXPECT_GT(saved, 2 * (4 * 192 * 192 + 2 * 192 * 1024) * 3 / 4);
}

TEST(Engine, NamesTheLayerWhoseActivationsCannotBeQuantized) {
  const RandomModel model("bert");
  constexpr float kHuge = 3e38F;
  const auto folder = changed(model, "bert.encoder.layer.1.intermediate.dense.weight",
                              [](at::Tensor& weight) { weight.sign_().mul_(kHuge); });
  Engine engine(folder->path(), Precision::kInt8, capacity(2, 100));
  const Texts texts(50, false, 1);
  EXPECT_THAT(error_text([&] { score(engine, texts); }),
              HasSubstr("numeric: sequence 0: the input of layer 1 feed_forward.out holds infinity or NaN"));
  Engine in_bf16(folder->path(),
                 {.precision = Precision::kInt8, .bf16_linears = {{.layer = 1, .linear = Linear::kOutput}}},
                 capacity(2, 100));
  EXPECT_EQ(error_text([&] { score(in_bf16, texts); }), "no error") << "its logits are for others to refuse";
}

TEST(Engine, NamesTheSequenceOfAFewThatThreadsShare) {
  const RandomModel model("bert");
  const auto folder = changed(model, "bert.embeddings.word_embeddings.weight",
                              [](at::Tensor& rows) { rows.select(0, 77).fill_(std::nanf("")); });
  for (const int threads : {1, 2, 5}) {
    Engine engine(folder->path(), Precision::kInt8, capacity(threads, 50));
    Texts texts(3, false, 1);
    std::ranges::replace(texts.ids, 77, 78);
    EXPECT_EQ(error_text([&] { score(engine, texts); }), "no error");
    texts.ids.back() = 77;
    EXPECT_THAT(error_text([&] { score(engine, texts); }),
                HasSubstr("sequence 2: the input of layer 0 attention.qkv holds"));
    texts.ids.front() = 77;
    EXPECT_THAT(error_text([&] { score(engine, texts); }),
                HasSubstr("sequence 0: the input of layer 0 attention.qkv holds"));
  }
}

TEST(Engine, NamesTheSequenceWhoseActivationsCannotBeQuantized) {
  const RandomModel model("bert");
  const auto folder = changed(model, "bert.embeddings.word_embeddings.weight",
                              [](at::Tensor& rows) { rows.select(0, 77).fill_(std::nanf("")); });
  Engine engine(folder->path(), Precision::kInt8, capacity(2, 100));
  Texts texts(50, false, 1);
  std::ranges::replace(texts.ids, 77, 78);
  texts.ids[static_cast<size_t>(texts.offsets[31] - 1)] = 77;
  EXPECT_THAT(error_text([&] { score(engine, texts); }),
              HasSubstr("sequence 30: the input of layer 0 attention.qkv holds"));
}

TEST(Engine, RefusesPlansThatMakeNoSense) {
  const RandomModel model("bert");
  const auto refusal = [&](const PrecisionPlan& plan) {
    return error_text([&] { Engine(model.folder(), plan, capacity(1, 100)); });
  };
  EXPECT_THAT(refusal({.precision = Precision::kInt8, .bf16_linears = {{.layer = 2}}}),
              HasSubstr("configuration: layer 2 attention.qkv is to stay in bf16"));
  EXPECT_THAT(refusal({.precision = Precision::kBf16, .bf16_linears = {{.layer = 1}}}),
              HasSubstr("for an engine of bf16"));
  Engine fixed(model.folder(), Precision::kInt8, capacity(1, 100));
  EXPECT_THAT(error_text([&] { fixed.keep_in_bf16({}); }), HasSubstr("one form of its weights"));
  const auto folder = changed(model, "bert.encoder.layer.1.attention.self.value.weight",
                              [](at::Tensor& weight) { weight.fill_(std::nanf("")); });
  EXPECT_THAT(error_text([&] { Engine(folder->path(), Precision::kInt8, capacity(1, 100)); }),
              AllOf(HasSubstr("of the weight holds infinity or NaN"), HasSubstr("layer 1 attention.qkv")));
}

TEST(Engine, RefusesCallsThatOverlapAndAnEngineThatWasMovedFrom) {
  const RandomModel model("bert");
  const Texts texts(400, false, 1);
  Engine engine(model.folder(), Precision::kFp32, capacity(1, 100));
  const Logits expected = score(engine, texts);
  std::atomic<int> refused{0};
  run_side_by_side(2, [&](int) {
    for (int i = 0; i < 1000 && refused == 0; ++i) {
      const std::string text = error_text([&] { EXPECT_EQ(score(engine, texts), expected); });
      if (text.find("two calls of one engine overlap") != std::string::npos) ++refused;
    }
  });
  EXPECT_GE(refused, 1);
  EXPECT_EQ(score(engine, texts), expected);
  const Engine moved = std::move(engine);
  EXPECT_THAT(error_text([&] { engine.memory(); }), HasSubstr("was moved"));  // NOLINT(bugprone-use-after-move)
}

TEST(Engine, ScoresNothingAtAll) {
  const RandomModel model("bert");
  EXPECT_TRUE(score(model, Precision::kFp32, capacity(2, 100), Texts(0, false, 1)).empty());
}

TEST(Engine, LeavesTheCallersNumberOfThreadsAlone) {
  const RandomModel model("bert");
  set_num_threads(2);
  score(model, Precision::kFp32, capacity(1, 100), Texts(5, false, 1));
  EXPECT_EQ(num_threads(), 2);
  score(model, Precision::kFp32, capacity(2, 100), Texts(5, false, 1));
  EXPECT_EQ(num_threads(), 2);
}

TEST(Engine, RefusesSequencesThatItCannotScore) {
  const RandomModel model("roberta");
  Engine engine(model.folder(), Precision::kFp32, capacity(1, 100));
  Logits logits(3);
  const auto refusal = [&](std::vector<int32_t> ids, int32_t second_begin) {
    const std::array<int64_t, 2> offsets{0, std::ssize(ids)};
    return error_text([&] { engine.score({ids, offsets, std::span(&second_begin, 1)}, logits); });
  };
  EXPECT_EQ(refusal({5, 6}, 2), "no error");
  EXPECT_THAT(refusal({}, 0), HasSubstr("data: sequence 0 has no tokens"));
  EXPECT_THAT(refusal(std::vector<int32_t>(kLongest + 1, 5), 99), HasSubstr("61 tokens; at most 60"));
  EXPECT_THAT(refusal({5, 211}, 2), HasSubstr("token id 211 is outside the model's vocabulary of 211"));
  EXPECT_THAT(refusal({-1}, 1), HasSubstr("token id -1"));
  EXPECT_THAT(refusal({5, 6}, 1), HasSubstr("a second part at 1"));
}

TEST(Engine, RefusesAModelWithoutAHead) {
  const RandomModel model("bert");
  const tensors::SafetensorsFile whole(model.folder() / "model.safetensors");
  std::vector<tensors::NamedTensor> base;
  for (const auto& [name, info] : whole.tensors()) {
    if (!name.starts_with("classifier.")) base.push_back({name, whole.read(name)});
  }
  const ModelFolder folder(config_of("bert"));
  tensors::write_safetensors(folder.path() / "model.safetensors", base, {});
  EXPECT_THAT(error_text([&] { Engine(folder.path(), Precision::kFp32, capacity(1, 100)); }),
              HasSubstr("is not fine-tuned for classification: it has no tensor 'classifier.weight'"));
}

}  // namespace
}  // namespace strake::inference::engine_test
