#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "strake/core/crc32c.h"
#include "strake/tensors/safetensors.h"

namespace strake::training {

using FileSums = std::map<std::string, FileSum>;  // of files that a rank has written, by name

// The files that one rank writes into a folder, one after the other: at once, or first into this process's memory and
// to the disk by another thread (torch.distributed.checkpoint.async_save).
class TensorFiles {
 public:
  using Write = tensors::SafetensorsWriter::Write;

  TensorFiles(std::filesystem::path folder, Write when) : folder_(std::move(folder)), when_(when) {}

  const std::filesystem::path& folder() const { return folder_; }

  // Writes other files than those of tensors, or keeps `write` for later, when another thread calls it: it must own
  // what it needs.
  void add(std::function<void()> write);
  void add_text(const std::string& name, std::string text);
  // The next file of tensors: its name, tensors and metadata; then its tensors in their order, on the CPU. See
  // SafetensorsWriter.
  void begin(const std::string& name, std::vector<tensors::SafetensorsWriter::Entry> entries,
             const std::map<std::string, std::string>& metadata);
  void write(const at::Tensor& tensor) { files_.back().writer->write(tensor); }
  void end();

  // Of weights that are not finite.
  void mark_not_finite() { are_finite_ = false; }
  bool are_finite() const { return are_finite_; }

  bool is_in_memory() const { return when_ == Write::kLater; }
  // Brings the files to the disk that are in memory, where they stay. May be called by another thread. Error
  // (kInterrupted) soon after it is told to stop.
  void write_all(const std::stop_token& stop = {});
  // Of the files of tensors. After write_all().
  const FileSums& sums() const { return sums_; }

 private:
  struct NamedFile {
    std::string name;
    std::unique_ptr<tensors::SafetensorsWriter> writer;
  };

  std::filesystem::path folder_;
  Write when_;
  std::vector<NamedFile> files_;  // kNow: the one at hand
  std::vector<std::function<void()>> others_;
  FileSums sums_;
  bool are_finite_ = true;
};

}  // namespace strake::training
