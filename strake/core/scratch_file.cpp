#include "strake/core/scratch_file.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <numeric>
#include <system_error>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/memory.h"

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

std::string describe_failure(bool is_read, size_t bytes, uint64_t offset, int error) {
  return fmt::format("{} of {} bytes at {} failed: {}", is_read ? "reading" : "writing", bytes, offset,
                     error == 0 ? "end of file" : std::strerror(error));
}

}  // namespace

void FreeAligned::operator()(std::byte* memory) const { std::free(memory); }

AlignedBytes allocate_aligned(size_t bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(ScratchFile::kAlignment, bytes));
  if (memory == nullptr) throw std::bad_alloc();
  ask_for_huge_pages(memory, bytes);
  return AlignedBytes(memory);
}

ScratchFile::ScratchFile(const std::filesystem::path& folder, uint64_t bytes, const Options& options)
    : folder_(folder), bytes_(bytes), block_bytes_(options.block_bytes), depth_(options.depth) {
  constexpr size_t kLargestBlock = size_t{1} << 30;
  require(block_bytes_ > 0 && block_bytes_ <= kLargestBlock && block_bytes_ % kAlignment == 0 && depth_ > 0,
          ErrorKind::kInternal, "scratch file: blocks of {} bytes, {} at a time", block_bytes_, depth_);
  require(std::filesystem::is_directory(folder), ErrorKind::kIo, "{} is no folder", folder.string());
  descriptor_ = open_nameless(folder, O_DIRECT);
  is_direct_ = descriptor_ >= 0;
  if (!is_direct_) descriptor_ = open_nameless(folder, 0);
  require(descriptor_ >= 0, ErrorKind::kIo, "cannot create a file in {}: {}", folder.string(), std::strerror(errno));
  const int error = bytes == 0 ? 0 : reserve_space(descriptor_, bytes);
  if (error != 0) {
    ::close(descriptor_);
    std::error_code unknown;
    const auto free = std::filesystem::space(folder, unknown).available;
    fail(ErrorKind::kIo, "cannot reserve {:.1f} MiB in {}, which has {:.1f} MiB free: {}",
         static_cast<double>(bytes) / (1 << 20), folder.string(), unknown ? 0.0 : static_cast<double>(free) / (1 << 20),
         std::strerror(error));
  }
  try {
    start_threads(options.engine);
  } catch (const std::system_error& error) {
    stop();
    fail(ErrorKind::kIo, "cannot start a thread for files in {}: {}", folder.string(), error.what());
  } catch (...) {
    stop();
    throw;
  }
}

ScratchFile::~ScratchFile() { stop(); }

void ScratchFile::start_threads(Engine engine) {
  if (engine != Engine::kThreads) ring_ = IoRing::open(static_cast<unsigned>(depth_) + 1);
  if (ring_) {
    news_ = ::eventfd(0, EFD_CLOEXEC);
    require(news_ >= 0, ErrorKind::kIo, "cannot make an event: {}", std::strerror(errno));
    threads_.emplace_back([this] { work_ring(); });
    return;
  }
  require(engine != Engine::kIoUring, ErrorKind::kIo, "the kernel does not allow io_uring");
  for (int i = 0; i < depth_; ++i) threads_.emplace_back([this] { work(); });
}

void ScratchFile::stop() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  tell_of_news();
  for (std::thread& thread : threads_) thread.join();
  if (news_ >= 0) ::close(news_);
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
  require(refusal_.empty(), ErrorKind::kIo, "scratch file in {}: {}", folder_.string(), refusal_);
  const uint64_t ticket = next_ticket_++;
  transfers_[ticket].blocks_left = (bytes + block_bytes_ - 1) / block_bytes_;
  for (size_t begin = 0; begin < bytes; begin += block_bytes_) {
    blocks_.push_back({ticket, is_read, offset + begin, memory + begin, std::min(block_bytes_, bytes - begin)});
  }
  tell_of_news();
  return ticket;
}

void ScratchFile::tell_of_news() {
  if (!ring_) return changed_.notify_all();
  ::eventfd_write(news_, 1);  // fails only if unread news fill 64 bits
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

void ScratchFile::wait_all(std::span<const uint64_t> tickets) {
  std::exception_ptr first;
  for (const uint64_t ticket : tickets) {
    try {
      wait(ticket);
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
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
    finish(block, error);
  }
}

void ScratchFile::finish(const Block& block, const std::string& error) {
  Progress& progress = transfers_[block.ticket];
  if (!error.empty()) progress.error = error;
  if (--progress.blocks_left == 0) changed_.notify_all();
}

void ScratchFile::refuse_all(const std::string& error) {
  refusal_ = error;
  blocks_.clear();
  for (auto& [ticket, progress] : transfers_) {
    if (progress.blocks_left > 0) progress = {.blocks_left = 0, .error = error};
  }
  changed_.notify_all();
}

void ScratchFile::work_ring() {
  struct Flight {
    Block block;
    size_t done = 0;
  };
  std::vector<Flight> flights(static_cast<size_t>(depth_));
  std::vector<size_t> idle(flights.size());
  std::iota(idle.begin(), idle.end(), 0);
  const auto submit = [&](size_t slot) {
    const auto& [block, done] = flights[slot];
    ring_->submit({.is_read = block.is_read,
                   .descriptor = descriptor_,
                   .memory = block.memory + done,
                   .bytes = block.bytes - done,
                   .offset = block.offset + done,
                   .tag = slot});
  };
  // Besides blocks the ring reads the event that tells of new ones.
  const size_t kNews = flights.size();
  const auto listen = [&] {
    ring_->submit({.descriptor = news_,
                   .memory = reinterpret_cast<std::byte*>(&news_count_),
                   .bytes = sizeof news_count_,
                   .tag = kNews});
  };
  listen();
  std::unique_lock lock(mutex_);
  while (!closing_ || !blocks_.empty() || idle.size() < flights.size()) {
    for (; !blocks_.empty() && !idle.empty(); blocks_.pop_front(), idle.pop_back()) {
      flights[idle.back()] = {.block = blocks_.front()};
      submit(idle.back());
    }
    lock.unlock();
    const auto completion = ring_->wait();
    const int error = errno;
    lock.lock();
    if (!completion) return refuse_all(fmt::format("io_uring_enter failed: {}", std::strerror(error)));
    if (completion->tag == kNews) {
      listen();
      continue;
    }
    Flight& flight = flights[completion->tag];
    const int64_t result = completion->result;
    flight.done += static_cast<size_t>(std::max<int64_t>(result, 0));
    const bool goes_on = result == -EINTR || result == -EAGAIN || (result > 0 && flight.done < flight.block.bytes);
    if (goes_on) {
      submit(completion->tag);
      continue;
    }
    const Block& block = flight.block;
    finish(block,
           result > 0 ? "" : describe_failure(block.is_read, block.bytes, block.offset, static_cast<int>(-result)));
    idle.push_back(completion->tag);
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
      return describe_failure(block.is_read, block.bytes, block.offset, count == 0 ? 0 : errno);
    }
    done += static_cast<size_t>(count);
  }
  return {};
}

}  // namespace strake
