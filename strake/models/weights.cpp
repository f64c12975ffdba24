#include "strake/models/weights.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <set>

#include "strake/core/error.h"
#include "strake/core/philox.h"
#include "strake/core/threads.h"
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

// Part i of a parameter, whose rows may come from several checkpoint tensors, as the checkpoint has it.
at::Tensor stored_part(const ParameterSpec& spec, const at::Tensor& value, size_t part) {
  const auto num_parts = static_cast<int64_t>(spec.checkpoint_names.size());
  const int64_t rows = value.size(0) / num_parts;
  const at::Tensor own = num_parts == 1 ? value : value.narrow(0, static_cast<int64_t>(part) * rows, rows);
  return spec.stored_as == StoredAs::kTransposed ? own.t() : own;
}

void require_shape(const CheckpointFiles& files, const std::string& name, at::IntArrayRef shape) {
  const auto& info = files.info(name);
  require(at::IntArrayRef(info.shape) == shape, ErrorKind::kConfig,
          "checkpoint tensor '{}' has shape {}, but config.json makes it {}", name, tensors::describe_shape(info.shape),
          tensors::describe_shape(shape));
  require(c10::isFloatingType(info.dtype), ErrorKind::kConfig,
          "checkpoint tensor '{}' has dtype {}, expected a float type", name, tensors::safetensors_dtype(info.dtype));
}

// Of each of its checkpoint_names.
std::vector<int64_t> stored_shape(const ParameterSpec& spec) {
  std::vector<int64_t> shape = spec.shape;
  shape[0] /= static_cast<int64_t>(spec.checkpoint_names.size());
  if (spec.stored_as == StoredAs::kTransposed) std::ranges::reverse(shape);
  return shape;
}

// None: it is to get initial values.
std::optional<std::string> find_tensor(const WeightSource& source, const ParameterSpec& spec,
                                       const std::string& wanted) {
  std::optional<std::string> found = find_name(source.files, wanted, source.model.checkpoint_prefix());
  // Who saves shared tensors once may keep them under the other name, as safetensors' save_model() does.
  if (!found && !spec.checkpoint_copy.empty() && source.files.contains(spec.checkpoint_copy)) {
    found = spec.checkpoint_copy;
  }
  if (found && spec.is_head) {
    const auto& shape = source.files.info(*found).shape;
    const std::vector<int64_t> expected = stored_shape(spec);
    if (shape != expected && source.ignores_mismatched_sizes) return std::nullopt;
    require(shape == expected, ErrorKind::kConfig,
            "checkpoint tensor '{}' has shape {}, and the head that config.json's id2label or num_labels ask for {} "
            "(strake train --ignore_mismatched_sizes makes a new one)",
            *found, tensors::describe_shape(shape), tensors::describe_shape(expected));
  }
  require(found || spec.is_head, ErrorKind::kConfig, "the checkpoint has no tensor '{}'", wanted);
  return found;
}

// use(rows as they are in the file, the same ones of `value`). In pieces: what is mapped of the file comes on top of
// the block.
template <typename Use>
void for_each_piece(const CheckpointFiles& files, const std::string& name, const at::Tensor& value, const Use& use) {
  require_shape(files, name, value.sizes());
  constexpr int64_t kPieceElements = int64_t{1} << 20;
  const int64_t rows = value.size(0);
  const int64_t step = std::max<int64_t>(1, kPieceElements * rows / std::max<int64_t>(1, value.numel()));
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    use(files.read_rows(name, row, row + count), value.narrow(0, row, count));
  }
}

void copy_tensor(const CheckpointFiles& files, const std::string& name, const at::Tensor& target) {
  for_each_piece(files, name, target, [](const at::Tensor& read, const at::Tensor& rows) { rows.copy_(read); });
}

void check_copy(const CheckpointFiles& files, const std::string& name, const ParameterSpec& spec,
                const at::Tensor& value) {
  bool is_equal = true;
  for_each_piece(files, name, value, [&](const at::Tensor& read, const at::Tensor& rows) {
    is_equal = is_equal && read.to(rows.scalar_type()).equal(rows);
  });
  require(is_equal, ErrorKind::kConfig,
          "checkpoint tensor '{}' differs from '{}', to which config.json ties it (tie_word_embeddings)", name,
          spec.checkpoint_names.front());
}

uint64_t hash_name(const std::string& name) {  // FNV-1a
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

void initialize(const ParameterSpec& spec, double initializer_range, uint64_t seed, const at::Tensor& target) {
  if (spec.initialization == Initialization::kZeros) {
    target.zero_();
    return;
  }
  if (spec.initialization == Initialization::kOnes) {
    target.fill_(1);
    return;
  }
  const PhiloxKey key = philox_key(seed, hash_name(spec.name));
  const auto range = static_cast<float>(initializer_range * spec.initial_scale);
  auto* data = target.mutable_data_ptr<float>();
  const int64_t count = target.numel();
  parallel_for(count, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 2) {
      const auto pair = philox_normal_pair(key, static_cast<uint64_t>(i) / 2);
      data[i] = pair[0] * range;
      if (i + 1 < end) data[i + 1] = pair[1] * range;
    }
  });
}

}  // namespace

void load_block(const Block& block, const WeightSource& source, at::Tensor& flat,
                std::vector<std::string>& initialized) {
  for (size_t i = 0; i < block.parameters().size(); ++i) {
    const ParameterSpec& spec = block.parameters()[i];
    const at::Tensor value = FlatLayout::view(flat, block.layout().entries()[i]);
    bool is_from_copy = false;
    for (size_t part = 0; part < spec.checkpoint_names.size(); ++part) {
      const std::string& wanted = spec.checkpoint_names[part];
      const auto found = find_tensor(source, spec, wanted);
      is_from_copy = is_from_copy || found == spec.checkpoint_copy;
      if (found) {
        copy_tensor(source.files, *found, stored_part(spec, value, part));
      } else {
        initialize(spec, source.model.initializer_range(), source.seed, value);
        initialized.push_back(wanted);
      }
    }
    if (!is_from_copy && !spec.checkpoint_copy.empty() && source.files.contains(spec.checkpoint_copy)) {
      check_copy(source.files, spec.checkpoint_copy, spec, value);
    }
  }
}

void check_block(const Block& block, const WeightSource& source) {
  for (const ParameterSpec& spec : block.parameters()) {
    for (const std::string& wanted : spec.checkpoint_names) {
      const auto found = find_tensor(source, spec, wanted);
      if (found) require_shape(source.files, *found, stored_shape(spec));
    }
  }
}

void check_tensors(const WeightSource& source) {
  for (const auto& block : source.model.blocks()) check_block(*block, source);
}

void initialize_block(const Block& block, double initializer_range, uint64_t seed, at::Tensor& flat) {
  for (size_t i = 0; i < block.parameters().size(); ++i) {
    initialize(block.parameters()[i], initializer_range, seed, FlatLayout::view(flat, block.layout().entries()[i]));
  }
}

std::vector<CheckpointTensor> checkpoint_tensors(const Block& block) {
  std::vector<CheckpointTensor> result;
  for (const ParameterSpec& spec : block.parameters()) {
    for (const std::string& name : spec.checkpoint_names) result.push_back({name, stored_shape(spec)});
  }
  return result;
}

std::vector<tensors::NamedTensor> named_weights(const Block& block, const at::Tensor& flat) {
  std::vector<tensors::NamedTensor> result;
  for (size_t i = 0; i < block.parameters().size(); ++i) {
    const ParameterSpec& spec = block.parameters()[i];
    const at::Tensor value = FlatLayout::view(flat, block.layout().entries()[i]);
    for (size_t part = 0; part < spec.checkpoint_names.size(); ++part) {
      result.emplace_back(spec.checkpoint_names[part], stored_part(spec, value, part));
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
      used.insert(spec.checkpoint_copy);
    }
  }
  std::vector<std::string> unused;
  for (const std::string& name : files.names()) {
    if (!used.contains(name) && !model.is_buffer(name)) unused.push_back(name);
  }
  return unused;
}

}  // namespace strake::models
