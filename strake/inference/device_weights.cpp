#include "strake/inference/device_weights.h"

#include <string>

#include "strake/core/error.h"
#include "strake/inference/encoder_checkpoint.h"
#include "strake/models/encoder/classification_head.h"

namespace strake::inference {
namespace {

// A block's parameters on a device, windows of one tensor, and exact on the host.
class DeviceBlock {
 public:
  DeviceBlock(const models::Block& block, const at::Tensor& exact, const at::Tensor& placed)
      : block_(block), exact_(block.view(exact, nullptr)), placed_(block.view(placed, nullptr)) {}

  // Undefined if the block has none of this name.
  at::Tensor table(const std::string& name) const {
    const size_t i = find(name);
    return i == placed_.size() ? at::Tensor() : placed_[i].value;
  }
  // Errors: kNumeric for numbers that are not finite.
  DeviceAffine affine(const std::string& name) const { return {finite(name + ".weight"), finite(name + ".bias")}; }

 private:
  size_t find(const std::string& name) const { return find_parameter(block_, name); }
  const at::Tensor& finite(const std::string& name) const {
    const size_t i = find(name);
    require(i < placed_.size(), ErrorKind::kInternal, "block '{}' has no parameter '{}'", block_.name(), name);
    require_finite(block_.parameters()[i].name, exact_[i].value);
    return placed_[i].value;
  }

  const models::Block& block_;
  models::Parameters exact_, placed_;
};

class Loader {
 public:
  Loader(EncoderCheckpoint& checkpoint, at::ScalarType dtype, at::Device device)
      : checkpoint_(checkpoint), dtype_(dtype), device_(device) {}

  DeviceBlock load(const models::Block& block) {
    const at::Tensor exact = checkpoint_.read(block);
    const at::Tensor placed = exact.to(dtype_).to(device_);
    bytes_ += static_cast<int64_t>(placed.nbytes());
    return {block, exact, placed};
  }
  DeviceAffine in_fp32(const DeviceAffine& affine) {
    const DeviceAffine wide{affine.weight.to(at::kFloat), affine.bias.to(at::kFloat)};
    if (dtype_ != at::kFloat) bytes_ += static_cast<int64_t>(wide.weight.nbytes() + wide.bias.nbytes());
    return wide;
  }
  int64_t bytes() const { return bytes_; }

 private:
  EncoderCheckpoint& checkpoint_;
  at::ScalarType dtype_;
  at::Device device_;
  int64_t bytes_ = 0;
};

DeviceWeights load_all(EncoderCheckpoint& checkpoint, Loader& loader) {
  DeviceWeights weights;
  const DeviceBlock embeddings = loader.load(checkpoint.embeddings());
  weights.word = embeddings.table("word");
  weights.position = embeddings.table("position");
  weights.token_type = embeddings.table("token_type");
  weights.norm = embeddings.affine("norm");
  for (const auto& block : checkpoint.layers()) {
    const DeviceBlock layer = loader.load(*block);
    DeviceLayer& placed = weights.layers.emplace_back();
    for (int i = 0; i < kLinears; ++i) {
      placed.linears[static_cast<size_t>(i)] = layer.affine(to_string(static_cast<Linear>(i)));
    }
    placed.attention_norm = layer.affine("attention.norm");
    placed.output_norm = layer.affine("feed_forward.norm");
  }
  if (const models::Block* const head = checkpoint.head()) {
    const DeviceBlock last = loader.load(*head);
    if (const auto* classifies = dynamic_cast<const models::ClassificationHeadBlock*>(head)) {
      weights.dense = last.affine("dense");
      weights.dense_activation = classifies->activation();
    }
    weights.classifier = loader.in_fp32(last.affine("classifier"));
  }
  weights.bytes = loader.bytes();
  return weights;
}

}  // namespace

DeviceWeights load_device_weights(const EncoderSource& from, at::Device device) {
  require(from.plan.precision != Precision::kInt8, ErrorKind::kConfig,
          "int8 is computed on processors only; on GPUs take bf16");
  EncoderCheckpoint checkpoint(from);
  Loader loader(checkpoint, from.plan.precision == Precision::kFp32 ? at::kFloat : at::kBFloat16, device);
  return checkpoint.load([&] { return load_all(checkpoint, loader); });
}

}  // namespace strake::inference
