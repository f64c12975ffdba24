#include "strake/inference/encoder_weights.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "strake/core/clock.h"
#include "strake/core/crc32c.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/inference/cache_tuning.h"
#include "strake/inference/packed_file.h"
#include "strake/models/encoder/classification_head.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/encoder/token_head.h"
#include "strake/models/weights.h"

namespace strake::inference {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLine = 64;  // bytes

// Arrays by name: those of a packed file, or made one after the other.
class Arrays {
 public:
  Arrays() = default;
  explicit Arrays(std::unique_ptr<tensors::SafetensorsFile> file) : file_(std::move(file)) {}

  template <typename Make>
  const at::Tensor& get(const std::string& name, const Make& make) {
    all_.emplace_back(name, file_ ? file_->read(name) : make());
    bytes_ += static_cast<int64_t>(all_.back().second.nbytes());
    return all_.back().second;
  }
  bool are_made() const { return file_ == nullptr; }
  const std::vector<tensors::NamedTensor>& all() const { return all_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<tensors::SafetensorsFile> file_;
  std::vector<tensors::NamedTensor> all_;
  int64_t bytes_ = 0;
};

at::Tensor tensor_of(const kernels::SharedFloats& floats) {
  return at::from_blob(const_cast<float*>(floats.data()), {floats.bytes()}, [floats](void*) {}, at::kByte);
}

kernels::SharedFloats floats_of(const std::string& name, const at::Tensor& bytes) {
  const bool sound = bytes.scalar_type() == at::kByte && bytes.dim() == 1 && bytes.nbytes() % kLine == 0 &&
                     reinterpret_cast<uintptr_t>(bytes.const_data_ptr()) % kLine == 0;
  require(sound, ErrorKind::kConfig, "array '{}' is not made of cache lines", name);
  const auto owner = std::make_shared<const at::Tensor>(bytes);
  return {std::shared_ptr<const float>(owner, static_cast<const float*>(owner->const_data_ptr())),
          bytes.numel() / static_cast<int64_t>(sizeof(float))};
}

// Infinities may vanish in an activation: the outputs would be numbers, and wrong.
void require_finite(const std::string& name, const at::Tensor& weight) {
  constexpr uint32_t kMagnitude = 0x7FFFFFFF;
  constexpr uint32_t kInfinity = 0x7F800000;  // NaN comes after it
  const float* const values = weight.const_data_ptr<float>();
  uint32_t largest = 0;
  for (int64_t i = 0; i < weight.numel(); ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & kMagnitude);
  }
  require(largest < kInfinity, ErrorKind::kNumeric, "parameter '{}' holds infinity or NaN", name);
}

// A block's weights, packed. Its parameters are read from the checkpoint if arrays are to be made of them.
template <typename T>
class PackedBlock {
 public:
  PackedBlock(const models::Block& block, const models::WeightSource& source, models::LoadReport& report,
              Arrays& arrays)
      : block_(block), arrays_(arrays) {
    if (!arrays.are_made()) return;
    models::check_block(block, source);  // before memory is taken for what config.json says
    at::Tensor flat = at::zeros({block.layout().numel()});
    models::load_block(block, source, flat, report);
    exact_ = block.view(flat, nullptr);
    rounded_ = block.view(flat.to(kRounded), nullptr);
  }

  bool has(const std::string& name) const { return find(name) != block_.parameters().size(); }
  at::Tensor matrix(const std::string& name) {
    return get(name, kRounded, [&] { return parameter(name, kRounded); });
  }
  LinearWeights<T> linear(const std::string& name) {
    const auto [outputs, inputs] = sizes_of(name);
    const std::string array = block_.name() + "." + name + ".packed";
    const at::Tensor& panels = arrays_.get(array, [&, outputs = outputs, inputs = inputs] {
      require_finite(block_.name() + "." + name + ".weight", parameter(name + ".weight", at::kFloat));
      const at::Tensor weight = parameter(name + ".weight", kRounded);
      const auto* data = static_cast<const T*>(weight.const_data_ptr());
      return tensor_of(kernels::PackedMatrix<T>({data, inputs, kernels::Order::kColumns}, inputs, outputs).memory());
    });
    return {{floats_of(array, panels), inputs, outputs}, vector<T>(name + ".bias", kRounded)};
  }
  QuantizedLinear quantized(const std::string& name) {
    const auto [outputs, inputs] = sizes_of(name);
    const std::string array = block_.name() + "." + name + ".int8";
    const at::Tensor& matrix = arrays_.get(array, [&, outputs = outputs, inputs = inputs] {
      const at::Tensor weight = parameter(name + ".weight", at::kFloat);
      return tensor_of(kernels::QuantizedMatrix(weight.const_data_ptr<float>(), inputs, outputs).memory());
    });
    return {{floats_of(array, matrix), inputs, outputs}, vector<float>(name + ".bias", at::kFloat)};
  }
  NormWeights<T> norm(const std::string& name) {
    return {vector<T>(name + ".weight", kRounded), vector<T>(name + ".bias", kRounded)};
  }

 private:
  static constexpr at::ScalarType kRounded = std::is_same_v<T, float> ? at::kFloat : at::kBFloat16;

  size_t find(const std::string& name) const {
    const auto found = std::ranges::find(block_.parameters(), block_.name() + "." + name, &models::ParameterSpec::name);
    return static_cast<size_t>(found - block_.parameters().begin());
  }
  const std::vector<int64_t>& shape_of(const std::string& name) const {
    require(has(name), ErrorKind::kInternal, "block '{}' has no parameter '{}'", block_.name(), name);
    return block_.parameters()[find(name)].shape;
  }
  std::pair<int64_t, int64_t> sizes_of(const std::string& linear) const {
    const auto& shape = shape_of(linear + ".weight");
    return {shape.at(0), shape.at(1)};
  }

  const at::Tensor& parameter(const std::string& name, at::ScalarType dtype) const {
    return (dtype == at::kFloat ? exact_ : rounded_)[find(name)].value;
  }
  template <typename Make>
  const at::Tensor& get(const std::string& name, at::ScalarType dtype, const Make& make) {
    const std::string array = fmt::format("{}.{}.{}", block_.name(), name, at::toString(dtype));
    const at::Tensor& value = arrays_.get(array, make);
    require(value.scalar_type() == dtype && value.sizes() == at::IntArrayRef(shape_of(name)), ErrorKind::kConfig,
            "array '{}' has another shape or type", array);
    return value;
  }
  template <typename Value>
  std::vector<Value> vector(const std::string& name, at::ScalarType dtype) {
    const at::Tensor& value = get(name, dtype, [&] {
      require_finite(block_.name() + "." + name, parameter(name, at::kFloat));
      return parameter(name, dtype).clone();
    });
    const auto* data = static_cast<const Value*>(value.const_data_ptr());
    return {data, data + value.numel()};
  }

  const models::Block& block_;
  Arrays& arrays_;
  models::Parameters exact_, rounded_;
};

template <typename T>
LayerLinear<T> pack_linear(PackedBlock<T>& layer, const LinearName& name, const PrecisionPlan& plan) {
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
EmbeddingWeights<T> pack_embeddings(PackedBlock<T> block) {
  return {.word = block.matrix("word"),
          .position = block.matrix("position"),
          .token_type = block.has("token_type") ? block.matrix("token_type") : at::Tensor(),
          .norm = block.norm("norm")};
}

template <typename T>
EncoderWeights<T> pack(const EncoderSource& from, const models::WeightSource& source, models::LoadReport& report,
                       Arrays& arrays) {
  const auto blocks = source.model.blocks();
  const auto open = [&](const models::Block& block) { return PackedBlock<T>(block, source, report, arrays); };
  EncoderWeights<T> weights{.embeddings = pack_embeddings<T>(open(*blocks.front())), .layers = {}, .head = {}};
  for (size_t i = 1; i + 1 < blocks.size(); ++i) {
    auto layer = open(*blocks[i]);
    const auto linear = [&](Linear which) {
      return pack_linear<T>(layer, {static_cast<int64_t>(i) - 1, which}, from.plan);
    };
    weights.layers.push_back({.linears = {linear(Linear::kQkv), linear(Linear::kAttentionOutput),
                                          linear(Linear::kIntermediate), linear(Linear::kOutput)},
                              .attention_norm = layer.norm("attention.norm"),
                              .output_norm = layer.norm("feed_forward.norm")});
  }
  if (std::holds_alternative<SequenceHead>(from.head)) {
    auto last = open(*blocks.back());
    weights.head = {
        .dense = last.linear("dense"),
        .dense_activation = dynamic_cast<const models::ClassificationHeadBlock&>(*blocks.back()).activation(),
        .classifier = last.linear("classifier")};
  } else if (const auto* tokens = std::get_if<TokenHead>(&from.head)) {
    const models::TokenHeadBlock block(from.config, tokens->checkpoint_name, tokens->outputs, 0);
    weights.head.classifier = open(block).linear("classifier");
  }
  weights.bytes = arrays.bytes();
  return weights;
}

template <typename T>
EncoderWeights<T> pack_checkpoint(const EncoderSource& from, const models::Model& model,
                                  const tensors::CheckpointFiles& files, Arrays& arrays) {
  models::LoadReport report;
  EncoderWeights<T> weights = [&] {
    try {
      return pack<T>(from, {.model = model, .files = files}, report, arrays);
    } catch (Error& error) {
      error.add_context("while loading " + from.folder.string());
      throw;
    }
  }();
  const bool classifies = std::holds_alternative<SequenceHead>(from.head);
  require(report.initialized.empty(), ErrorKind::kConfig, "{} is not fine-tuned for {}: it has no tensor '{}'{}",
          from.folder.string(), classifies ? "classification" : "this task",
          report.initialized.empty() ? "" : report.initialized.front(),
          classifies ? ". Train it with strake train first" : "");
  return weights;
}

// Heads of other tasks are expected beside an encoder.
bool is_of_head(std::string_view name) {
  constexpr std::array kHeads{"cls.",
                              "classifier.",
                              "pooler.",
                              "qa_outputs.",
                              "lm_head.",
                              "pre_classifier.",
                              "vocab_transform.",
                              "vocab_layer_norm.",
                              "vocab_projector."};
  return std::ranges::any_of(kHeads, [&](std::string_view head) { return name.starts_with(head); });
}

// As Transformers does of tensors that are UNEXPECTED: config.json may be that of a smaller model.
void warn_of_unused(const fs::path& folder, const models::Model& model, const tensors::CheckpointFiles& files) {
  const std::string prefix = model.checkpoint_prefix();
  std::vector<std::string> unused;
  for (const std::string& name : models::unused_names(model, files)) {
    if (!is_of_head(name.starts_with(prefix) ? std::string_view(name).substr(prefix.size()) : name)) {
      unused.push_back(name);
    }
  }
  if (unused.empty()) return;
  constexpr size_t kLongestList = 300;
  log::warning("{}: {} tensor{} that config.json has no use for: {}", folder.string(), unused.size(),
               unused.size() == 1 ? "" : "s", printable(fmt::format("{}", fmt::join(unused, ", ")), kLongestList));
}

// Names and shapes of the tensors that a model is loaded from.
uint32_t structure_of(const models::Model& model) {
  std::string text;
  for (const auto& block : model.blocks()) {
    for (const models::CheckpointTensor& tensor : models::checkpoint_tensors(*block)) {
      text += fmt::format("{} {}\n", tensor.name, fmt::join(tensor.shape, " "));
    }
  }
  return crc32c(text.data(), text.size());
}

template <typename T>
PackedFile::Identity identity_of(const EncoderSource& from, const models::Model& model) {
  const char* head = "sequence";
  std::string of_head;
  if (std::holds_alternative<PooledHead>(from.head)) head = "pooled";
  if (const auto* tokens = std::get_if<TokenHead>(&from.head)) {
    head = "tokens";
    of_head = fmt::format(" {} of {}", tokens->checkpoint_name, tokens->outputs);
  }
  const char* precision = to_string(from.plan.precision);
  std::string arrays = fmt::format("{}; head {}{}; tensors {:08x}; linear layers {}", precision, from.head.index(),
                                   of_head, structure_of(model), kernels::PackedMatrix<T>::layout());
  if (from.plan.precision == Precision::kInt8) arrays += "; int8 " + kernels::QuantizedMatrix::layout();
  for (const LinearName& name : from.plan.bf16_linears) arrays += "; in bf16 " + name.text();
  return {.name = fmt::format("{}-{}-{}", precision, head, to_string(best_isa())), .arrays = std::move(arrays)};
}

template <typename T>
LayerBlocks tune(EncoderWeights<T>& weights) {
  const auto start = Clock::now();
  const LayerBlocks blocks = measure_blocks(weights);
  use_blocks(blocks, weights);
  log::info("linear layers measured in {:.1f} s; blocks of {}", seconds_since(start),
            blocks == LayerBlocks{} ? "the usual size are best" : "other sizes are faster: " + text_of(blocks));
  return blocks;
}

template <typename T>
std::optional<EncoderWeights<T>> map(const EncoderSource& from, const models::Model& model, const PackedFile& packed,
                                     const tensors::CheckpointFiles& files) {
  auto file = packed.open();
  if (!file) return std::nullopt;
  try {
    const auto blocks = parse_blocks(PackedFile::notes_of(*file));
    Arrays arrays(std::move(file));
    models::LoadReport report;
    auto weights = pack<T>(from, {.model = model, .files = files}, report, arrays);
    log::info("weights mapped from {}", packed.path().string());
    if (blocks) {
      use_blocks(*blocks, weights);
    } else {
      tune(weights);  // another processor's that packs alike are not the best here
    }
    return weights;
  } catch (const Error& error) {
    log::info("packed weights are not used: {}", error.what());
    return std::nullopt;
  }
}

}  // namespace

template <typename T>
EncoderWeights<T> load_encoder_weights(const EncoderSource& from) {
  for (const LinearName& name : from.plan.bf16_linears) {
    require(name.layer >= 0 && name.layer < from.config.num_hidden_layers, ErrorKind::kConfig,
            "{} is to stay in bf16, and {} has {} layers", name.text(), from.folder.string(),
            from.config.num_hidden_layers);
  }
  const models::SequenceClassifier model(from.config);
  const tensors::CheckpointFiles files(from.folder);
  warn_of_unused(from.folder, model, files);
  Arrays arrays;
  if (from.packed == PackedWeights::kOff) return pack_checkpoint<T>(from, model, files, arrays);

  const PackedFile packed(from.folder, identity_of<T>(from, model), files.paths());
  if (auto weights = map<T>(from, model, packed, files)) return std::move(*weights);
  const auto turn = packed.take_turn();
  if (turn && turn->waited()) {  // for somebody who may have packed the same
    if (auto weights = map<T>(from, model, packed, files)) return std::move(*weights);
  }
  auto weights = pack_checkpoint<T>(from, model, files, arrays);
  if (!turn) return weights;
  const LayerBlocks blocks = tune(weights);
  if (!packed.write(*turn, arrays.all(), text_of(blocks))) return weights;
  auto mapped = map<T>(from, model, packed, files);  // to share what the next process maps, too
  return mapped ? std::move(*mapped) : std::move(weights);
}

template EncoderWeights<float> load_encoder_weights(const EncoderSource&);
template EncoderWeights<kernels::BFloat16> load_encoder_weights(const EncoderSource&);

}  // namespace strake::inference
