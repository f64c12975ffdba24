#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "strake/core/json.h"
#include "strake/core/test_error.h"
#include "strake/models/block.h"

// For tests of this module.
namespace strake::models {

// config.json of a small BERT; `changes` replace or add keys, null ones remove them.
inline Json small_config(const Json& changes = Json::object()) {
  Json config{{"model_type", "bert"},          {"vocab_size", 11},         {"hidden_size", 8},
              {"num_hidden_layers", 1},        {"num_attention_heads", 2}, {"intermediate_size", 12},
              {"max_position_embeddings", 10}, {"type_vocab_size", 2}};
  config.update(changes);
  for (const auto& [key, value] : changes.items()) {
    if (value.is_null()) config.erase(key);
  }
  return config;
}

// A folder that lasts as long as the object.
class ModelFolder {
 public:
  ModelFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("strake_models_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  explicit ModelFolder(const Json& config) : ModelFolder() { write("config.json", config.dump()); }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// "kind: text" of the Error that an action throws, or "no error".
template <typename Action>
std::string error_text(const Action& action) {
  return error_of(action).with_kind();
}

// Values between -1 and 1 without a pattern that a layer could be blind to.
inline at::Tensor wave(at::IntArrayRef shape, double phase) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return at::arange(count).to(at::kDouble).mul(1.7).add(phase).sin().to(at::kFloat).reshape(shape);
}

// Sequences of these lengths, of dataset rows 100, 101, ...; ids and types count upwards within [0, 11) and [0, 2).
inline tensors::PackedBatch packed_batch(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> ids, types, positions, offsets{0};
  std::vector<int64_t> rows;
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int32_t i = 0; i < lengths[s]; ++i) {
      ids.push_back(static_cast<int32_t>(ids.size() * 3 % 11));
      types.push_back(i % 2);
      positions.push_back(i);
      rows.push_back(100 + static_cast<int64_t>(s));
    }
    offsets.push_back(static_cast<int32_t>(ids.size()));
  }
  return {.input_ids = at::tensor(ids),
          .token_type_ids = at::tensor(types),
          .positions = at::tensor(positions),
          .token_rows = at::tensor(rows),
          .offsets = at::tensor(offsets),
          .labels = {}};
}

// Keeps the gradients that layers hand over, by parameter.
class RecordingSink final : public GradientSink {
 public:
  explicit RecordingSink(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {}

  void accept(size_t parameter, const at::Tensor& gradient) override {
    require(gradients.emplace(parameter, gradient.clone()).second, ErrorKind::kInternal, "two gradients");
  }
  Target target(size_t parameter) override {
    const auto [gradient, is_new] = gradients.try_emplace(parameter, at::zeros(parameters_[parameter].sizes()));
    require(is_new, ErrorKind::kInternal, "two gradients");
    return {.gradient = gradient->second, .store = kernels::Store::kOverwrite};
  }
  at::Tensor add_target(size_t parameter, const Rows& /*rows*/) override {
    return gradients.try_emplace(parameter, at::zeros(parameters_[parameter].sizes())).first->second;
  }

  std::map<size_t, at::Tensor> gradients;

 private:
  std::vector<at::Tensor> parameters_;
};

}  // namespace strake::models
