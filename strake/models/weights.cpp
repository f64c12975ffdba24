#include "strake/models/weights.h"

#include <ATen/ops/zeros.h>

#include <functional>
#include <set>

#include "strake/core/error.h"
#include "strake/core/philox.h"
#include "strake/tensors/dtype.h"

namespace strake::models {
namespace {

using tensors::CheckpointFiles;
using tensors::FlatLayout;

// Old TensorFlow exports call a layer norm's weight and bias gamma and beta; base checkpoints lack the model's prefix.
std::vector<std::string> spellings(const std::string& name, const std::string& prefix) {
  std::vector<std::string> result{name};
  if (name.starts_with(prefix)) result.push_back(name.substr(prefix.size()));
  for (size_t i = 0, count = result.size(); i < count; ++i) {
    const std::string text = result[i];
    for (const auto& [now, then] :
         {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}}) {
      const std::string suffix(now);
      if (text.ends_with(suffix)) result.push_back(text.substr(0, text.size() - suffix.size()) + then);
    }
  }
  return result;
}

std::optional<std::string> find_name(const CheckpointFiles& files, const std::string& name, const std::string& prefix) {
  for (const std::string& spelling : spellings(name, prefix)) {
    if (files.contains(spelling)) return spelling;
  }
  return std::nullopt;
}

// Part i of a parameter whose rows come from several checkpoint tensors.
at::Tensor stacked_part(const at::Tensor& value, size_t part, size_t num_parts) {
  const int64_t rows = value.size(0) / static_cast<int64_t>(num_parts);
  return num_parts == 1 ? value : value.narrow(0, static_cast<int64_t>(part) * rows, rows);
}

void copy_tensor(const CheckpointFiles& files, const std::string& name, const at::Tensor& target) {
  const auto& info = files.info(name);
  require(at::IntArrayRef(info.shape) == target.sizes(), ErrorKind::kConfig,
          "checkpoint tensor '{}' has shape {}, but config.json makes it {}", name, tensors::describe_shape(info.shape),
          tensors::describe_shape(target.sizes()));
  require(c10::isFloatingType(info.dtype), ErrorKind::kConfig,
          "checkpoint tensor '{}' has dtype {}, expected a float type", name, tensors::safetensors_dtype(info.dtype));
  target.copy_(files.read(name));
}

uint64_t hash_name(const std::string& name) {  // FNV-1a
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

void initialize(const ParameterSpec& spec, double range, uint64_t seed, const at::Tensor& target) {
  if (spec.initialization == Initialization::kZeros) {
    target.zero_();
    return;
  }
  if (spec.initialization == Initialization::kOnes) {
    target.fill_(1);
    return;
  }
  const PhiloxKey key = philox_key(seed, hash_name(spec.name));
  auto* data = target.mutable_data_ptr<float>();
  const int64_t count = target.numel();
  for (int64_t i = 0; i < count; i += 2) {
    const auto pair = philox_normal_pair(key, static_cast<uint64_t>(i) / 2);
    data[i] = pair[0] * static_cast<float>(range);
    if (i + 1 < count) data[i + 1] = pair[1] * static_cast<float>(range);
  }
}

}  // namespace

void load_block(const Block& block, const WeightSource& source, at::Tensor& flat, LoadReport& report) {
  const std::string prefix = source.model.checkpoint_prefix();
  for (size_t i = 0; i < block.parameters().size(); ++i) {
    const ParameterSpec& spec = block.parameters()[i];
    const at::Tensor value = FlatLayout::view(flat, block.layout().entries()[i]);
    for (size_t part = 0; part < spec.checkpoint_names.size(); ++part) {
      const std::string& wanted = spec.checkpoint_names[part];
      const auto found = find_name(source.files, wanted, prefix);
      require(found || spec.is_head, ErrorKind::kConfig, "the checkpoint has no tensor '{}'", wanted);
      if (found) {
        copy_tensor(source.files, *found, stacked_part(value, part, spec.checkpoint_names.size()));
      } else {
        initialize(spec, source.model.initializer_range(), source.seed, value);
        report.initialized.push_back(wanted);
      }
    }
  }
}

void initialize_block(const Block& block, double initializer_range, uint64_t seed, at::Tensor& flat) {
  for (size_t i = 0; i < block.parameters().size(); ++i) {
    initialize(block.parameters()[i], initializer_range, seed, FlatLayout::view(flat, block.layout().entries()[i]));
  }
}

std::vector<tensors::NamedTensor> named_weights(const Block& block, const at::Tensor& flat) {
  std::vector<tensors::NamedTensor> result;
  for (size_t i = 0; i < block.parameters().size(); ++i) {
    const auto& names = block.parameters()[i].checkpoint_names;
    const at::Tensor value = FlatLayout::view(flat, block.layout().entries()[i]);
    for (size_t part = 0; part < names.size(); ++part) {
      result.emplace_back(names[part], stacked_part(value, part, names.size()));
    }
  }
  return result;
}

std::vector<std::string> unused_names(const Model& model, const CheckpointFiles& files) {
  const std::string prefix = model.checkpoint_prefix();
  std::set<std::string> used;
  for (const auto& block : model.blocks()) {
    for (const ParameterSpec& spec : block->parameters()) {
      for (const std::string& name : spec.checkpoint_names) {
        if (const auto found = find_name(files, name, prefix)) used.insert(*found);
      }
    }
  }
  std::vector<std::string> unused;
  for (const std::string& name : files.names()) {
    if (!used.contains(name)) unused.push_back(name);
  }
  return unused;
}

}  // namespace strake::models
