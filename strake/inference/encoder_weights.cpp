#include "strake/inference/encoder_weights.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "strake/core/error.h"
#include "strake/models/encoder/classification_head.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/encoder/token_head.h"
#include "strake/models/weights.h"

namespace strake::inference {
namespace {

// A block's parameters by name, and what they become.
template <typename T>
class LoadedBlock {
 public:
  LoadedBlock(const models::Block& block, const models::WeightSource& source, models::LoadReport& report,
              int64_t& bytes)
      : block_(block), bytes_(bytes) {
    at::Tensor flat = at::zeros({block.layout().numel()});
    models::load_block(block, source, flat, report);
    values_ = block.view(std::is_same_v<T, float> ? flat : flat.to(at::kBFloat16), nullptr);
    exact_ = block.view(flat, nullptr);
  }

  bool has(const std::string& name) const { return find(name) != values_.size(); }
  const at::Tensor& matrix(const std::string& name) {
    const at::Tensor& value = get(name);
    bytes_ += value.numel() * static_cast<int64_t>(sizeof(T));
    return value;
  }
  LinearWeights<T> linear(const std::string& name) {
    const at::Tensor& weight = get(name + ".weight");
    kernels::PackedMatrix<T> packed({data(weight), weight.size(1), kernels::Order::kColumns}, weight.size(1),
                                    weight.size(0));
    bytes_ += packed.bytes();
    return {std::move(packed), vector(name + ".bias")};
  }
  QuantizedLinear quantized(const std::string& name) {
    const at::Tensor& weight = exact_[find(name + ".weight")].value;
    const at::Tensor& bias = exact_[find(name + ".bias")].value;
    kernels::QuantizedMatrix matrix(weight.const_data_ptr<float>(), weight.size(1), weight.size(0));
    bytes_ += matrix.bytes() + bias.numel() * static_cast<int64_t>(sizeof(float));
    const auto* values = bias.const_data_ptr<float>();
    return {std::move(matrix), {values, values + bias.numel()}};
  }
  NormWeights<T> norm(const std::string& name) { return {vector(name + ".weight"), vector(name + ".bias")}; }

 private:
  static const T* data(const at::Tensor& tensor) { return static_cast<const T*>(tensor.const_data_ptr()); }

  size_t find(const std::string& name) const {
    const auto found = std::ranges::find(block_.parameters(), block_.name() + "." + name, &models::ParameterSpec::name);
    return static_cast<size_t>(found - block_.parameters().begin());
  }
  const at::Tensor& get(const std::string& name) const {
    require(has(name), ErrorKind::kInternal, "block '{}' has no parameter '{}'", block_.name(), name);
    return values_[find(name)].value;
  }
  std::vector<T> vector(const std::string& name) {
    const at::Tensor& value = get(name);
    bytes_ += value.numel() * static_cast<int64_t>(sizeof(T));
    return {data(value), data(value) + value.numel()};
  }

  const models::Block& block_;
  models::Parameters values_;
  models::Parameters exact_;  // fp32
  int64_t& bytes_;
};

template <typename T>
LayerLinear<T> load_linear(LoadedBlock<T>& layer, const LinearName& name, const PrecisionPlan& plan) {
  const bool both = plan.forms == PrecisionPlan::Forms::kBoth;
  LayerLinear<T> linear;
  if (both || !plan.computes_in_int8(name)) linear.plain = layer.linear(to_string(name.linear));
  if (both || plan.computes_in_int8(name)) {
    try {
      linear.quantized = layer.quantized(to_string(name.linear));
    } catch (Error& error) {
      error.add_context(name.text());
      throw;
    }
  }
  return linear;
}

template <typename T>
EncoderWeights<T> load(const models::SequenceClassifier& model, const models::WeightSource& source,
                       const PrecisionPlan& plan, const Head& head, models::LoadReport& report) {
  int64_t bytes = 0;
  const auto open = [&](size_t i) { return LoadedBlock<T>(*model.blocks()[i], source, report, bytes); };
  auto first = open(0);
  EmbeddingWeights<T> embeddings{.word = first.matrix("word"),
                                 .position = first.matrix("position"),
                                 .token_type = first.has("token_type") ? first.matrix("token_type") : at::Tensor(),
                                 .norm = first.norm("norm")};
  std::vector<LayerWeights<T>> layers;
  for (size_t i = 1; i + 1 < model.blocks().size(); ++i) {
    auto layer = open(i);
    const auto linear = [&](Linear which) { return load_linear<T>(layer, {static_cast<int64_t>(i) - 1, which}, plan); };
    layers.push_back({.linears = {linear(Linear::kQkv), linear(Linear::kAttentionOutput), linear(Linear::kIntermediate),
                                  linear(Linear::kOutput)},
                      .attention_norm = layer.norm("attention.norm"),
                      .output_norm = layer.norm("feed_forward.norm")});
  }
  HeadWeights<T> of_head;
  if (std::holds_alternative<SequenceHead>(head)) {
    const models::Block& block = *model.blocks().back();
    auto last = open(model.blocks().size() - 1);
    of_head = {.dense = last.linear("dense"),
               .dense_activation = dynamic_cast<const models::ClassificationHeadBlock&>(block).activation(),
               .classifier = last.linear("classifier")};
  } else if (const auto* tokens = std::get_if<TokenHead>(&head)) {
    const models::TokenHeadBlock block(model.config(), tokens->checkpoint_name, tokens->outputs, 0);
    of_head.classifier = LoadedBlock<T>(block, source, report, bytes).linear("classifier");
  }
  return {.embeddings = std::move(embeddings), .layers = std::move(layers), .head = std::move(of_head), .bytes = bytes};
}

}  // namespace

template <typename T>
EncoderWeights<T> load_encoder_weights(const std::filesystem::path& folder, const models::EncoderConfig& config,
                                       const PrecisionPlan& plan, const Head& head) {
  for (const LinearName& name : plan.bf16_linears) {
    require(name.layer >= 0 && name.layer < config.num_hidden_layers, ErrorKind::kConfig,
            "{} is to stay in bf16, and {} has {} layers", name.text(), folder.string(), config.num_hidden_layers);
  }
  const models::SequenceClassifier model(config);
  const tensors::CheckpointFiles files(folder);
  models::LoadReport report;
  EncoderWeights<T> weights = [&] {
    try {
      return load<T>(model, {.model = model, .files = files}, plan, head, report);
    } catch (Error& error) {
      error.add_context("while loading " + folder.string());
      throw;
    }
  }();
  require(report.initialized.empty(), ErrorKind::kConfig, "{} is not fine-tuned for {}: it has no tensor '{}'{}",
          folder.string(), std::holds_alternative<SequenceHead>(head) ? "classification" : "this task",
          report.initialized.empty() ? "" : report.initialized.front(),
          std::holds_alternative<SequenceHead>(head) ? ". Train it with strake train first" : "");
  return weights;
}

template EncoderWeights<float> load_encoder_weights(const std::filesystem::path&, const models::EncoderConfig&,
                                                    const PrecisionPlan&, const Head&);
template EncoderWeights<kernels::BFloat16> load_encoder_weights(const std::filesystem::path&,
                                                                const models::EncoderConfig&, const PrecisionPlan&,
                                                                const Head&);

}  // namespace strake::inference
