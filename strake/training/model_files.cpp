#include "strake/training/model_files.h"

#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/core/log.h"
#include "strake/models/weights.h"
#include "strake/tensors/checkpoint_files.h"
#include "strake/tensors/safetensors.h"

namespace strake::training {
namespace {
namespace fs = std::filesystem;

using tensors::SafetensorsWriter;

// Which rank writes a block: contiguous runs of blocks of about the same size.
std::vector<int> block_writers(const models::Model& model, int ranks) {
  int64_t total = 0;
  for (const auto& block : model.blocks()) total += block->layout().numel();
  std::vector<int> writers;
  int64_t before = 0;
  for (const auto& block : model.blocks()) {
    const int64_t middle = before + block->layout().numel() / 2;
    writers.push_back(static_cast<int>(middle * ranks / std::max<int64_t>(total, 1)));
    before += block->layout().numel();
  }
  return writers;
}

std::vector<SafetensorsWriter::Entry> entries_of(const models::Model& model, const std::vector<int>& writers,
                                                 int rank) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (size_t i = 0; i < writers.size(); ++i) {
    if (writers[i] != rank) continue;
    for (const auto& [name, shape] : models::checkpoint_tensors(*model.blocks()[i])) {
      entries.push_back({name, at::kFloat, shape});
    }
  }
  return entries;
}

std::string part_name(int rank, int ranks) { return fmt::format("model-{:05}-of-{:05}.safetensors", rank + 1, ranks); }

bool all_finite(const at::Tensor& values) {
  const float* const p = values.const_data_ptr<float>();
  int64_t others = 0;
  for (int64_t i = 0; i < values.numel(); ++i) others += !(std::abs(p[i]) <= std::numeric_limits<float>::max());
  return others == 0;
}

// A step refuses a loss that is not finite, but no step comes after the last one. What was trained is written all the
// same: also a row that no text uses may be the cause.
void warn_of_broken(const models::Block& block, const at::Tensor& whole, const fs::path& path, TensorFiles& files) {
  if (all_finite(whole)) return;
  files.mark_not_finite();
  for (const auto& [name, tensor] : models::named_weights(block, whole)) {
    const at::Tensor values = tensor.contiguous();
    if (all_finite(values)) continue;
    log::warning("{}: '{}' has numbers that are not finite; a lower --learning_rate may help", path.string(), name);
  }
}

// Blocks whose writer is this rank go to the file.
void write_blocks(const models::Model& model, ShardedParameters& parameters, const std::vector<int>& writers,
                  const std::string& name, TensorFiles& files) {
  const bool writes = std::ranges::find(writers, parameters.rank()) != writers.end();
  if (writes) files.begin(name, entries_of(model, writers, parameters.rank()), {{"format", "pt"}});
  for (size_t i = 0; i < parameters.num_blocks(); ++i) {
    const at::Tensor whole = parameters.whole_weights(i);
    if (writers[i] != parameters.rank()) continue;
    warn_of_broken(*model.blocks()[i], whole, files.folder() / name, files);
    for (const auto& [tensor_name, tensor] : models::named_weights(*model.blocks()[i], whole)) files.write(tensor);
  }
  if (writes) files.end();
}

void write_index(const models::Model& model, const std::vector<int>& writers, int ranks, TensorFiles& files) {
  Json names = Json::object();
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& entry : entries_of(model, writers, rank)) names[entry.name] = part_name(rank, ranks);
  }
  const auto bytes = model.num_parameters() * static_cast<int64_t>(sizeof(float));
  const Json index{{"metadata", {{"total_size", bytes}}}, {"weight_map", names}};
  files.add_text(tensors::kWeightsIndexFile, json_text(index, 2) + "\n");
}

}  // namespace

void write_model(const models::Model& model, ShardedParameters& parameters, TensorFiles& files) {
  write_blocks(model, parameters, std::vector<int>(parameters.num_blocks(), 0), tensors::kWeightsFile, files);
}

void write_model_parts(const models::Model& model, ShardedParameters& parameters, TensorFiles& files) {
  const int ranks = parameters.num_ranks();
  if (ranks == 1) return write_model(model, parameters, files);
  const std::vector<int> writers = block_writers(model, ranks);
  write_blocks(model, parameters, writers, part_name(parameters.rank(), ranks), files);
  if (parameters.rank() == 0) write_index(model, writers, ranks, files);
}

int64_t elements_of_part(const models::Model& model, int rank, int num_ranks) {
  const std::vector<int> writers = block_writers(model, num_ranks);
  int64_t elements = 0;
  for (size_t i = 0; i < writers.size(); ++i) {
    if (writers[i] == rank) elements += model.blocks()[i]->layout().numel();
  }
  return elements;
}

void remove_other_weights(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_numbered =
        name.starts_with("model-") && name.find("-of-") != std::string::npos && name.ends_with(".safetensors");
    if (name == tensors::kWeightsIndexFile || is_numbered) others.push_back(entry.path());
  }
  for (const fs::path& path : others) {
    log::info("removing {}, of an earlier model", path.string());
    fs::remove(path, error);
  }
}

void read_model(const models::Model& model, ShardedParameters& parameters, const fs::path& folder) {
  const tensors::CheckpointFiles files(folder);
  for (size_t i = 0; i < parameters.num_blocks(); ++i) {
    const models::Block& block = *model.blocks()[i];
    at::Tensor whole = at::zeros({block.layout().numel()});
    std::vector<std::string> initialized;
    models::load_block(block, {.model = model, .files = files}, whole, initialized);
    require(initialized.empty(), ErrorKind::kConfig, "{} lacks tensor '{}'", folder.string(),
            initialized.empty() ? "" : initialized.front());
    parameters.assign(i, whole);
  }
}

}  // namespace strake::training
