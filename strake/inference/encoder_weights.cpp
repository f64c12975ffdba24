#include "strake/inference/encoder_weights.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "strake/core/clock.h"
#include "strake/core/crc32c.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/inference/cache_tuning.h"
#include "strake/inference/encoder_checkpoint.h"
#include "strake/inference/packed_file.h"
#include "strake/models/encoder/classification_head.h"

namespace strake::inference {
namespace {

constexpr size_t kLine = 64;  // bytes

// Arrays by name: those of a packed file, or made one after the other.
class NamedArrays {
 public:
  NamedArrays() = default;
  explicit NamedArrays(std::unique_ptr<tensors::SafetensorsFile> file) : file_(std::move(file)) {}

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

// A block's weights, packed. Its parameters are read from the checkpoint if arrays are to be made of them.
template <typename T>
class PackedBlock {
 public:
  PackedBlock(const models::Block& block, EncoderCheckpoint& checkpoint, NamedArrays& arrays)
      : block_(block), arrays_(arrays) {
    if (!arrays.are_made()) return;
    const at::Tensor flat = checkpoint.read(block);
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

  size_t find(const std::string& name) const { return find_parameter(block_, name); }
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
  NamedArrays& arrays_;
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
EncoderWeights<T> pack(const EncoderSource& from, EncoderCheckpoint& checkpoint, NamedArrays& arrays) {
  const auto open = [&](const models::Block& block) { return PackedBlock<T>(block, checkpoint, arrays); };
  EncoderWeights<T> weights{.embeddings = pack_embeddings<T>(open(checkpoint.embeddings())), .layers = {}, .head = {}};
  for (const auto& block : checkpoint.layers()) {
    auto layer = open(*block);
    const int64_t index = std::ssize(weights.layers);
    const auto linear = [&](Linear which) { return pack_linear<T>(layer, {index, which}, from.plan); };
    weights.layers.push_back({.linears = {linear(Linear::kQkv), linear(Linear::kAttentionOutput),
                                          linear(Linear::kIntermediate), linear(Linear::kOutput)},
                              .attention_norm = layer.norm("attention.norm"),
                              .output_norm = layer.norm("feed_forward.norm")});
  }
  if (const models::Block* const head = checkpoint.head()) {
    auto last = open(*head);
    if (const auto* classifies = dynamic_cast<const models::ClassificationHeadBlock*>(head)) {
      weights.head.dense = last.linear("dense");
      weights.head.dense_activation = classifies->activation();
    }
    weights.head.classifier = last.linear("classifier");
  }
  weights.bytes = arrays.bytes();
  return weights;
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
std::optional<EncoderWeights<T>> map(const EncoderSource& from, EncoderCheckpoint& checkpoint,
                                     const PackedFile& packed) {
  auto file = packed.open();
  if (!file) return std::nullopt;
  try {
    const auto blocks = parse_blocks(PackedFile::notes_of(*file));
    const auto mapped = file->mapped();
    NamedArrays arrays(std::move(file));
    auto weights = pack<T>(from, checkpoint, arrays);
    weights.mapped = mapped;
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
  NamedArrays arrays;
  // Of the files as they are now: they may be replaced while another process is waited for.
  const auto pack_all = [&] {
    EncoderCheckpoint checkpoint(from);
    return checkpoint.load([&] { return pack<T>(from, checkpoint, arrays); });
  };
  if (from.packed == PackedWeights::kOff) return pack_all();

  EncoderCheckpoint checkpoint(from);
  const PackedFile packed(from.folder, identity_of<T>(from, checkpoint.model()), checkpoint.files().paths());
  if (auto weights = map<T>(from, checkpoint, packed)) return std::move(*weights);
  const auto turn = packed.take_turn();
  if (turn && turn->waited()) {  // for somebody who may have packed the same
    if (auto weights = map<T>(from, checkpoint, packed)) return std::move(*weights);
  }
  auto weights = pack_all();
  if (!turn) return weights;
  const LayerBlocks blocks = tune(weights);
  if (!packed.write(*turn, arrays.all(), text_of(blocks))) return weights;
  auto mapped = map<T>(from, checkpoint, packed);  // to share what the next process maps, too
  return mapped ? std::move(*mapped) : std::move(weights);
}

template EncoderWeights<float> load_encoder_weights(const EncoderSource&);
template EncoderWeights<kernels::BFloat16> load_encoder_weights(const EncoderSource&);

}  // namespace strake::inference
