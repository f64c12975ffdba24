#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strake/core/crc32c.h"
#include "strake/tensors/safetensors.h"

namespace strake::training {

using FileSums = std::map<std::string, FileSum>;  // of files that a rank has written, by name

// The tensor files that one rank writes into a folder, one after the other: at once, or from copies of the tensors in
// this process's memory, later and by another thread (torch.distributed.checkpoint.async_save).
class TensorFiles {
 public:
  enum class Write { kNow, kLater };

  TensorFiles(std::filesystem::path folder, Write when) : folder_(std::move(folder)), when_(when) {}

  const std::filesystem::path& folder() const { return folder_; }

  // The next file's name, tensors and metadata; then its tensors in their order, on the CPU. See SafetensorsWriter.
  void begin(const std::string& name, std::vector<tensors::SafetensorsWriter::Entry> entries,
             const std::map<std::string, std::string>& metadata);
  void write(const at::Tensor& tensor);
  void end();

  bool has_copies() const { return !copies_.empty(); }
  // Writes the files that are but copied, and keeps the copies. May be called by another thread.
  void write_copies();
  // Of all files. After write_copies().
  const FileSums& sums() const { return sums_; }

 private:
  struct CopiedFile {
    std::string name;
    std::vector<tensors::SafetensorsWriter::Entry> entries;
    std::map<std::string, std::string> metadata;
    std::vector<at::Tensor> tensors = {};
  };

  std::filesystem::path folder_;
  Write when_;
  std::string name_;                                    // of the file at hand
  std::unique_ptr<tensors::SafetensorsWriter> writer_;  // kNow
  std::vector<CopiedFile> copies_;                      // kLater
  FileSums sums_;
};

}  // namespace strake::training
