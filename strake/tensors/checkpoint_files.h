#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "strake/tensors/safetensors.h"

namespace strake::tensors {

inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";

// The weights of a Hugging Face model folder: model.safetensors, or the files that model.safetensors.index.json names.
// A folder that has only pickled weights (pytorch_model.bin) is refused with the way to convert it.
class CheckpointFiles {
 public:
  explicit CheckpointFiles(const std::filesystem::path& folder);

  bool contains(const std::string& name) const { return file_of_.contains(name); }
  std::vector<std::string> names() const;
  const SafetensorsFile::Info& info(const std::string& name) const;
  at::Tensor read_rows(const std::string& name, int64_t begin, int64_t end) const;  // as SafetensorsFile does
  std::vector<std::filesystem::path> paths() const;

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> file_of_;
};

}  // namespace strake::tensors
