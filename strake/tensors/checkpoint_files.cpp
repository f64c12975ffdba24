#include "strake/tensors/checkpoint_files.h"

#include <algorithm>
#include <cctype>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/json.h"

namespace strake::tensors {
namespace {
namespace fs = std::filesystem;

bool is_identifier(const std::string& name) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(name, is_part);
}

// The class of Transformers that has all tensors of the folder, its head's too.
std::string model_class(const fs::path& folder) {
  if (is_there(folder / "config.json")) {
    const Json config = read_json(folder / "config.json", kMaxConfigBytes);
    const auto classes =
        get_or<std::vector<std::string>>(config, "architectures", {}, (folder / "config.json").string());
    if (!classes.empty() && is_identifier(classes.front())) return classes.front();
  }
  return "AutoModel";
}

// How to convert pickled weights, in a form that people paste: no name of the folder's may end a string in it.
std::string how_to_convert(const fs::path& folder) {
  const std::string name = folder.string();
  if (printable(name) != name || name.find_first_of("'\\") != std::string::npos) {
    return "load it in Python and write it with save_pretrained()";
  }
  return fmt::format(
      "in Python: from transformers import AutoTokenizer, {0}; {0}.from_pretrained('{1}').save_pretrained("
      "'{1}-safetensors'); AutoTokenizer.from_pretrained('{1}').save_pretrained('{1}-safetensors')",
      model_class(folder), name);
}

[[noreturn]] void fail_without_weights(const fs::path& folder) {
  std::error_code error;
  require(fs::is_directory(folder, error), ErrorKind::kConfig, "{} is not a model folder", folder.string());
  require(!is_there(folder / "pytorch_model.bin") && !is_there(folder / "pytorch_model.bin.index.json"),
          ErrorKind::kConfig,
          "{} has only pickled weights (pytorch_model.bin), which can run code when loaded and are not read. Convert "
          "them once: {}",
          folder.string(), how_to_convert(folder));
  fail(ErrorKind::kConfig, "{} has neither {} nor {}", folder.string(), kWeightsFile, kWeightsIndexFile);
}

}  // namespace

CheckpointFiles::CheckpointFiles(const fs::path& folder) {
  require(!is_there(folder / "adapter_config.json"), ErrorKind::kConfig,
          "{} holds an adapter (adapter_config.json), which is not supported: merge it into the weights with peft's "
          "merge_and_unload(), or remove the file to use the weights without it",
          folder.string());
  if (is_there(folder / kWeightsFile)) {
    files_.emplace_back(resolve_inside(folder, kWeightsFile, folder.string()));
    for (const auto& [name, info] : files_.front().tensors()) file_of_[name] = 0;
    return;
  }
  if (!is_there(folder / kWeightsIndexFile)) fail_without_weights(folder);
  const std::string source = (folder / kWeightsIndexFile).string();
  const Json index = read_json(folder / kWeightsIndexFile, kMaxIndexBytes);
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

}  // namespace strake::tensors
