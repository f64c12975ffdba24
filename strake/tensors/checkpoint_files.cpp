#include "strake/tensors/checkpoint_files.h"

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/json.h"

namespace strake::tensors {
namespace {
namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

std::map<std::string, std::string> metadata() { return {{"format", "pt"}}; }  // Transformers refuses files without it

[[noreturn]] void fail_without_weights(const fs::path& folder) {
  std::error_code error;
  require(fs::is_directory(folder, error), ErrorKind::kConfig, "{} is not a model folder", folder.string());
  require(!is_there(folder / "pytorch_model.bin") && !is_there(folder / "pytorch_model.bin.index.json"),
          ErrorKind::kConfig,
          "{} has only pickled weights (pytorch_model.bin), which can run code when loaded and are not read. Convert "
          "them once, in Python: from transformers import AutoModel; "
          "AutoModel.from_pretrained('{}').save_pretrained('{}-safetensors')",
          folder.string(), folder.string(), folder.string());
  fail(ErrorKind::kConfig, "{} has neither {} nor {}", folder.string(), kSingleFile, kIndexFile);
}

}  // namespace

CheckpointFiles::CheckpointFiles(const fs::path& folder) {
  if (is_there(folder / kSingleFile)) {
    files_.emplace_back(resolve_inside(folder, kSingleFile, folder.string()));
    for (const auto& [name, info] : files_.front().tensors()) file_of_[name] = 0;
    return;
  }
  if (!is_there(folder / kIndexFile)) fail_without_weights(folder);
  const std::string source = (folder / kIndexFile).string();
  const Json index = read_json(folder / kIndexFile, kMaxIndexBytes);
  const Json map = get_required<Json>(index, "weight_map", source);
  require(map.is_object(), ErrorKind::kConfig, "{}: weight_map is not an object", source);
  std::map<std::string, size_t> opened;
  for (const auto& [name, file] : map.items()) {
    require(file.is_string(), ErrorKind::kConfig, "{}: file of '{}' is not a string", source, printable(name));
    const auto [found, is_new] = opened.try_emplace(file.get<std::string>(), files_.size());
    if (is_new) files_.emplace_back(resolve_inside(folder, found->first, source));
    require(files_[found->second].tensors().contains(name), ErrorKind::kConfig, "{}: {} has no tensor '{}'", source,
            found->first, printable(name));
    file_of_[name] = found->second;
  }
}

std::vector<std::string> CheckpointFiles::names() const {
  std::vector<std::string> result;
  for (const auto& [name, file] : file_of_) result.push_back(name);
  return result;
}

const SafetensorsFile::Info& CheckpointFiles::info(const std::string& name) const {
  return files_[file_of_.at(name)].tensors().at(name);
}

at::Tensor CheckpointFiles::read_rows(const std::string& name, int64_t begin, int64_t end) const {
  return files_[file_of_.at(name)].read_rows(name, begin, end);
}

std::vector<fs::path> CheckpointFiles::paths() const {
  std::vector<fs::path> result;
  for (const SafetensorsFile& file : files_) result.push_back(file.path());
  return result;
}

void write_checkpoint_files(const fs::path& folder, const std::vector<NamedTensor>& tensors, uint64_t max_file_bytes) {
  std::vector<std::vector<NamedTensor>> parts(1);
  uint64_t part_bytes = 0;
  uint64_t total_bytes = 0;
  for (const NamedTensor& item : tensors) {
    if (part_bytes + item.second.nbytes() > max_file_bytes && !parts.back().empty()) {
      parts.emplace_back();
      part_bytes = 0;
    }
    part_bytes += item.second.nbytes();
    total_bytes += item.second.nbytes();
    parts.back().push_back(item);
  }
  if (parts.size() == 1) {
    write_safetensors(folder / kSingleFile, parts.front(), metadata());
    return;
  }
  Json map = Json::object();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    write_safetensors(folder / file, parts[i], metadata());
    for (const auto& [name, tensor] : parts[i]) map[name] = file;
  }
  const Json index{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", map}};
  write_file_atomically(folder / kIndexFile, index.dump(2) + "\n");
}

}  // namespace strake::tensors
