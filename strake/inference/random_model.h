#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "strake/inference/engine.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/test_model.h"
#include "strake/models/weights.h"
#include "strake/tensors/safetensors.h"

// For tests of this module.
namespace strake::inference {

inline constexpr int64_t kLongest = 60;

// Sizes are multiples of nothing in the kernels. The depth of the last product has several blocks.
inline Json config_of(const std::string& family, const Json& changes = Json::object()) {
  Json config{{"model_type", family},
              {"vocab_size", 211},
              {"max_position_embeddings", 70},
              {"id2label", {{"0", "no"}, {"1", "perhaps"}, {"2", "yes"}}},
              {"initializer_range", 0.15}};
  if (family == "distilbert") {
    config.update({{"dim", 66}, {"n_layers", 2}, {"n_heads", 3}, {"hidden_dim", 1050}});
  } else {
    config.update({{"hidden_size", 66},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 3},
                   {"intermediate_size", 1050},
                   {"type_vocab_size", family == "bert" ? 2 : 1}});
  }
  config.update(changes);
  return config;
}

// A classifier with random weights, biases and norms included.
class RandomModel {
 public:
  explicit RandomModel(const std::string& family, const Json& changes = Json::object())
      : folder_(config_of(family, changes)), model_(models::read_encoder_config(folder_.path())) {
    std::vector<tensors::NamedTensor> weights;
    for (const auto& block : model_.blocks()) {
      at::Tensor flat = at::zeros({block->layout().numel()});
      models::initialize_block(*block, model_.initializer_range(), 5, flat);
      flat.add_(models::wave({flat.numel()}, 0.3), 0.05);
      flats_.push_back(flat);
      for (auto& tensor : models::named_weights(*block, flat)) weights.push_back(std::move(tensor));
    }
    tensors::write_safetensors(folder_.path() / "model.safetensors", weights, {});
  }

  const std::filesystem::path& folder() const { return folder_.path(); }
  const models::SequenceClassifier& model() const { return model_; }
  const std::vector<at::Tensor>& flats() const { return flats_; }

 private:
  models::ModelFolder folder_;
  models::SequenceClassifier model_;
  std::vector<at::Tensor> flats_;
};

// Random sequences; padding ids among them, because RoBERTa gives those no position.
struct Texts {
  Texts(int64_t count, bool pairs, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int64_t s = 0; s < count; ++s) {
      const auto length = static_cast<int64_t>(s % 17 == 0 ? kLongest : 1 + random() % 40);
      for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(random() % 13 == 0 ? 1 : random() % 211));
      offsets.push_back(std::ssize(ids));
      second_begin.push_back(static_cast<int32_t>(pairs && s % 3 > 0 ? static_cast<int64_t>(random()) & 15 : length));
    }
  }

  PackedTokens tokens() const { return {ids, offsets, second_begin}; }
  int64_t count() const { return std::ssize(offsets) - 1; }
  // The same sequences in another order.
  Texts in_order(const std::vector<int64_t>& order) const {
    Texts result(0, false, 0);
    for (const int64_t s : order) {
      result.ids.insert(result.ids.end(), ids.begin() + offsets[s], ids.begin() + offsets[s + 1]);
      result.offsets.push_back(std::ssize(result.ids));
      result.second_begin.push_back(second_begin[s]);
    }
    return result;
  }

  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> second_begin;
};

using Logits = std::vector<float>;

inline float largest_difference(const Logits& a, const Logits& b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

inline Logits score(Engine& engine, const Texts& texts) {
  Logits logits(static_cast<size_t>(texts.count() * engine.config().num_labels()), -1e9F);
  engine.score(texts.tokens(), logits);
  return logits;
}

inline Logits score(const RandomModel& model, Precision precision, const Capacity& capacity, const Texts& texts) {
  Engine engine(model.folder(), precision, capacity);
  return score(engine, texts);
}

inline Capacity capacity(int threads, int64_t tokens) {
  return {.threads = threads, .tokens_at_a_time = tokens, .longest_sequence = kLongest};
}

// A copy of a BERT's folder with one tensor changed.
inline std::unique_ptr<models::ModelFolder> changed(const RandomModel& model, const std::string& name,
                                                    const std::function<void(at::Tensor&)>& change) {
  const tensors::SafetensorsFile whole(model.folder() / "model.safetensors");
  std::vector<tensors::NamedTensor> weights;
  bool found = false;
  for (const auto& [key, info] : whole.tensors()) {
    at::Tensor value = whole.read(key).clone();  // the file is mapped read-only
    if (key == name) change(value), found = true;
    weights.push_back({key, value});
  }
  EXPECT_TRUE(found) << name;
  auto folder = std::make_unique<models::ModelFolder>(config_of("bert"));
  tensors::write_safetensors(folder->path() / "model.safetensors", weights, {});
  return folder;
}

}  // namespace strake::inference
