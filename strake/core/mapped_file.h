#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace strake {

// Read-only memory map of a whole regular file. The pages belong to the page cache: processes of a host share them.
// A file that another program truncates while it is mapped raises SIGBUS; callers check sizes against size() first.
// What it writes into the file shows in bytes().
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  size_t size() const { return size_; }
  // Whether somebody has written into the file since it was mapped, says its time or size. Not by another file in its
  // place, nor where it is deleted.
  bool has_changed() const;

  // Takes the whole pages of `part` out of this process's resident memory. They stay in the page cache, and come back
  // when they are read.
  void let_go(std::span<const std::byte> part) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
  int64_t modified_ = 0;  // ns
};

}  // namespace strake
