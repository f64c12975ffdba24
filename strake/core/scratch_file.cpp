#include "strake/core/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "strake/core/error.h"

namespace strake {
namespace {

// Without a name from the beginning where the file system can do that, else for a moment only.
int open_nameless(const std::filesystem::path& folder, int flags) {
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return descriptor;
  std::string name = (folder / ".strake-scratch-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC | flags);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

void FreeAligned::operator()(std::byte* memory) const { std::free(memory); }

AlignedBytes allocate_aligned(size_t bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(ScratchFile::kAlignment, bytes));
  if (memory == nullptr) throw std::bad_alloc();
  return AlignedBytes(memory);
}

ScratchFile::ScratchFile(const std::filesystem::path& folder, uint64_t bytes, const Options& options)
    : folder_(folder), bytes_(bytes), block_bytes_(options.block_bytes) {
  require(block_bytes_ > 0 && block_bytes_ % kAlignment == 0 && options.threads > 0, ErrorKind::kInternal,
          "scratch file: blocks of {} bytes, {} threads", block_bytes_, options.threads);
  require(std::filesystem::is_directory(folder), ErrorKind::kIo, "{} is no folder", folder.string());
  descriptor_ = open_nameless(folder, O_DIRECT);
  is_direct_ = descriptor_ >= 0;
  if (!is_direct_) descriptor_ = open_nameless(folder, 0);
  require(descriptor_ >= 0, ErrorKind::kIo, "cannot create a file in {}: {}", folder.string(), std::strerror(errno));
  const int error = bytes == 0 ? 0 : ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
  if (error != 0) {
    ::close(descriptor_);
    fail(ErrorKind::kIo, "cannot reserve {:.1f} GiB in {}: {}", static_cast<double>(bytes) / (1 << 30), folder.string(),
         std::strerror(error));
  }
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { work(); });
}

ScratchFile::~ScratchFile() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  ::close(descriptor_);
}

uint64_t ScratchFile::read(uint64_t offset, std::span<std::byte> target) {
  return start(true, offset, target.data(), target.size());
}

uint64_t ScratchFile::write(uint64_t offset, std::span<const std::byte> source) {
  return start(false, offset, const_cast<std::byte*>(source.data()), source.size());
}

uint64_t ScratchFile::start(bool is_read, uint64_t offset, std::byte* memory, size_t bytes) {
  const bool is_aligned =
      offset % kAlignment == 0 && bytes % kAlignment == 0 && reinterpret_cast<uintptr_t>(memory) % kAlignment == 0;
  require(is_aligned && bytes <= bytes_ && offset <= bytes_ - bytes, ErrorKind::kInternal,
          "scratch file of {} bytes: transfer of {} at {} is not aligned or not inside", bytes_, bytes, offset);
  const std::lock_guard lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  transfers_[ticket].blocks_left = (bytes + block_bytes_ - 1) / block_bytes_;
  for (size_t begin = 0; begin < bytes; begin += block_bytes_) {
    blocks_.push_back({ticket, is_read, offset + begin, memory + begin, std::min(block_bytes_, bytes - begin)});
  }
  changed_.notify_all();
  return ticket;
}

void ScratchFile::wait(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  const auto transfer = transfers_.find(ticket);
  require(transfer != transfers_.end(), ErrorKind::kInternal, "scratch file: no transfer {}", ticket);
  changed_.wait(lock, [&] { return transfer->second.blocks_left == 0; });
  const std::string error = transfer->second.error;
  transfers_.erase(transfer);
  require(error.empty(), ErrorKind::kIo, "scratch file in {}: {}", folder_.string(), error);
}

void ScratchFile::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !blocks_.empty() || closing_; });
    if (blocks_.empty()) return;
    const Block block = blocks_.front();
    blocks_.pop_front();
    lock.unlock();
    const std::string error = transfer(block);
    lock.lock();
    Progress& progress = transfers_[block.ticket];
    if (!error.empty()) progress.error = error;
    if (--progress.blocks_left == 0) changed_.notify_all();
  }
}

std::string ScratchFile::transfer(const Block& block) const {
  size_t done = 0;
  while (done < block.bytes) {
    const auto position = static_cast<off_t>(block.offset + done);
    const ssize_t count = block.is_read ? ::pread(descriptor_, block.memory + done, block.bytes - done, position)
                                        : ::pwrite(descriptor_, block.memory + done, block.bytes - done, position);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return fmt::format("{} of {} bytes at {} failed: {}", block.is_read ? "reading" : "writing", block.bytes,
                         block.offset, count == 0 ? "end of file" : std::strerror(errno));
    }
    done += static_cast<size_t>(count);
  }
  return {};
}

}  // namespace strake
