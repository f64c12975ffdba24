#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>

namespace strake {

// Writes all of it. Error (kIo) with the path and reason.
void write_whole(int descriptor, const std::filesystem::path& path, const void* data, uint64_t bytes);

// Appends to a large file past the page cache (O_DIRECT), where the file system can: of a disk that takes gigabytes a
// second, copying into fresh pages leaves a quarter. Data that begins on a page goes to the disk from where it is,
// other data by way of two buffers of 4 MiB, of which one is filled while the other is written. Errors as
// write_whole(), by a later call.
class DirectOutput {
 public:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kBufferBytes = size_t{4} << 20;

  // The file is empty; it stays the caller's, and open as long as this object.
  DirectOutput(int descriptor, const std::filesystem::path& path);
  DirectOutput(const DirectOutput&) = delete;
  DirectOutput& operator=(const DirectOutput&) = delete;

  void append(const void* data, uint64_t bytes);
  // Writes what is no whole page. Nothing is appended afterwards.
  void finish();

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  void set_direct(bool is_direct);
  void put(const std::byte* data, size_t bytes);
  void wait();  // until no buffer is being written

  int descriptor_;
  const std::filesystem::path& path_;
  bool is_direct_ = false;
  std::unique_ptr<std::byte, Free> filling_;
  std::unique_ptr<std::byte, Free> writing_;
  size_t filled_ = 0;
  std::future<void> written_;  // last: its destructor waits
};

}  // namespace strake
