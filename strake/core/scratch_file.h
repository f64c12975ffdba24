#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace strake {

// Memory for direct transfers between disk and program.
struct FreeAligned {
  void operator()(std::byte* memory) const;
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;
AlignedBytes allocate_aligned(size_t bytes);

// A file of fixed size for what does not fit into memory: exists without a name, so that nothing is left behind
// however the program ends. Transfers are cut into blocks that several threads read and write at a time, past the
// page cache (O_DIRECT) where the file system allows it. Reading what was never written gives zeros. Calls are
// thread-safe; transfers that overlap must be ordered by wait().
class ScratchFile {
 public:
  // Offsets, sizes and addresses must be multiples of this.
  static constexpr size_t kAlignment = 4096;

  struct Options {
    int threads = 4;                       // transfers in flight
    size_t block_bytes = size_t{1} << 20;  // of one system call
  };

  // Reserves `bytes` on the disk of `folder` now. Error (kIo) naming the folder and the reason, such as a full disk.
  ScratchFile(const std::filesystem::path& folder, uint64_t bytes, const Options& options);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Starts a transfer; the memory must stay until wait() has returned. Returns its ticket.
  uint64_t read(uint64_t offset, std::span<std::byte> target);
  uint64_t write(uint64_t offset, std::span<const std::byte> source);
  // Returns when the transfer is done. Error (kIo) if it failed. Once per ticket.
  void wait(uint64_t ticket);

  uint64_t bytes() const { return bytes_; }
  bool is_direct() const { return is_direct_; }

 private:
  struct Block {
    uint64_t ticket;
    bool is_read;
    uint64_t offset;
    std::byte* memory;
    size_t bytes;
  };
  struct Progress {
    size_t blocks_left = 0;
    std::string error;
  };

  uint64_t start(bool is_read, uint64_t offset, std::byte* memory, size_t bytes);
  void work();
  // Returns the reason of a failure, or nothing.
  std::string transfer(const Block& block) const;

  std::filesystem::path folder_;
  uint64_t bytes_;
  size_t block_bytes_;
  int descriptor_ = -1;
  bool is_direct_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> blocks_;
  std::map<uint64_t, Progress> transfers_;
  uint64_t next_ticket_ = 1;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace strake
