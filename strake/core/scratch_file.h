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

#include "strake/core/io_ring.h"

namespace strake {

// Memory for direct transfers between disk and program; large blocks in huge pages where the system has them, because
// each page that does not follow the last one is a piece of its own to the disk's driver: a quarter of the speed on
// virtual disks, in pages of 4 KiB.
struct FreeAligned {
  void operator()(std::byte* memory) const;
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;
AlignedBytes allocate_aligned(size_t bytes);

// A file of fixed size for what does not fit into memory: exists without a name, so that nothing is left behind
// however the program ends. Transfers are cut into blocks, several of which are on their way at a time, by io_uring
// where the kernel allows it, else by threads with pread and pwrite; past the page cache (O_DIRECT) where the file
// system allows it. Reading what was never written gives zeros. Calls are thread-safe; transfers that overlap must be
// ordered by wait().
class ScratchFile {
 public:
  // Offsets, sizes and addresses must be multiples of this.
  static constexpr size_t kAlignment = 4096;
  static constexpr uint64_t whole_pages(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  enum class Engine { kBest, kIoUring, kThreads };
  struct Options {
    int depth = 4;                         // blocks on their way at a time
    size_t block_bytes = size_t{1} << 20;  // of one request
    Engine engine = Engine::kBest;
  };

  // Reserves `bytes` on the disk of `folder` now. Error (kIo) naming the folder and the reason, such as a full disk, or
  // if there is no io_uring and the options insist on it.
  ScratchFile(const std::filesystem::path& folder, uint64_t bytes, const Options& options);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Starts a transfer; the memory must stay until wait() has returned. Returns its ticket.
  uint64_t read(uint64_t offset, std::span<std::byte> target);
  uint64_t write(uint64_t offset, std::span<const std::byte> source);
  // Returns when the transfer is done. Error (kIo) if it failed. Once per ticket.
  void wait(uint64_t ticket);
  // The same for all of them: also if one fails, none is on its way any more.
  void wait_all(std::span<const uint64_t> tickets);

  uint64_t bytes() const { return bytes_; }
  bool is_direct() const { return is_direct_; }
  bool uses_io_uring() const { return ring_ != nullptr; }

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

  void start_threads(Engine engine);
  void stop();
  uint64_t start(bool is_read, uint64_t offset, std::byte* memory, size_t bytes);
  // Body of a thread that carries out one block at a time, and of the one that keeps the ring filled.
  void work();
  void work_ring();
  void tell_of_news();
  void finish(const Block& block, const std::string& error);
  // No transfer is possible any more.
  void refuse_all(const std::string& error);
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
  std::string refusal_;
  int depth_;
  std::unique_ptr<IoRing> ring_;
  int news_ = -1;  // event that wakes the thread of the ring
  uint64_t news_count_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace strake
