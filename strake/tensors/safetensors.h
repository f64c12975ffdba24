#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "strake/core/file.h"
#include "strake/core/mapped_file.h"

namespace strake::tensors {

using NamedTensor = std::pair<std::string, at::Tensor>;

// A memory-mapped .safetensors file, every rule of the format checked when opened
// (github.com/huggingface/safetensors, Metadata::validate): header length and JSON, no duplicate names, known dtypes,
// shape x dtype equal to the byte range without overflow, ranges that cover the data exactly, no holes, no overlap.
// Errors are kConfig and name the file and the tensor.
class SafetensorsFile {
 public:
  struct Info {
    c10::ScalarType dtype;
    std::vector<int64_t> shape;
    uint64_t begin = 0;  // bytes from the start of the data part
    uint64_t end = 0;
  };

  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, Info>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }
  std::shared_ptr<const MappedFile> mapped() const { return file_; }

  // The tensor as a view of the mapped file: do not write to it. It keeps the map alive. With it, its pages leave this
  // process's resident memory. kConfig if there is none.
  at::Tensor read(const std::string& name) const;
  // The same of rows [begin, end) of a tensor with at least one dimension.
  at::Tensor read_rows(const std::string& name, int64_t begin, int64_t end) const;

 private:
  const Info& find(const std::string& name) const;
  at::Tensor view(const Info& part) const;

  std::filesystem::path path_;
  std::shared_ptr<MappedFile> file_;
  uint64_t data_begin_ = 0;
  std::map<std::string, Info> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file whose tensors come one by one, so that they need not all be in memory: the header is given first, then
// every tensor in its order. The file appears, atomically and durably, at commit(). kLater: until then it is only in
// memory, and another thread may call commit().
class SafetensorsWriter {
 public:
  enum class Write { kNow, kLater };
  struct Entry {
    std::string name;
    c10::ScalarType dtype;
    std::vector<int64_t> shape;
  };

  SafetensorsWriter(const std::filesystem::path& path, std::vector<Entry> entries,
                    const std::map<std::string, std::string>& metadata, Write when = Write::kNow);

  // The next tensor; kInternal if its dtype or shape is not what was announced.
  void write(const at::Tensor& tensor);
  // Returns the sum of the whole file. kLater: Error (kInterrupted) soon after it is told to stop.
  FileSum commit(const std::stop_token& stop = {});

 private:
  void put(const void* data, uint64_t bytes);

  std::filesystem::path path_;
  std::vector<Entry> entries_;
  size_t next_ = 0;
  uint64_t bytes_ = 0;              // of the whole file
  std::optional<AtomicFile> file_;  // kNow
  // kLater: the file from a page's beginning on, and what of it is there.
  at::Tensor memory_;
  std::byte* image_ = nullptr;
  uint64_t filled_ = 0;
};

// Writes the tensors in the given order, atomically and durably; data starts on a 64-byte boundary.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace strake::tensors
