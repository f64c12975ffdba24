#include "strake/core/direct_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "strake/core/error.h"

namespace strake {

void write_whole(int descriptor, const std::filesystem::path& path, const void* data, uint64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(descriptor, next, bytes);
    if (put < 0 && errno == EINTR) continue;
    require(put > 0, ErrorKind::kIo, "cannot write {}: {}; the previous file is unchanged", path.string(),
            std::strerror(errno));
    next += put;
    bytes -= static_cast<uint64_t>(put);
  }
}

DirectOutput::DirectOutput(int descriptor, const std::filesystem::path& path)
    : descriptor_(descriptor), path_(path), buffer_(static_cast<std::byte*>(std::aligned_alloc(kPage, kBufferBytes))) {
  require(buffer_ != nullptr, ErrorKind::kIo, "cannot write {}: no memory for a buffer of {} bytes", path.string(),
          kBufferBytes);
  set_direct(true);
}

void DirectOutput::append(const void* data, uint64_t bytes) {
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    if (filled_ == 0 && bytes >= kPage && reinterpret_cast<uintptr_t>(next) % kPage == 0) {
      const size_t pages = std::min<uint64_t>(bytes, 2 * kBufferBytes) / kPage * kPage;
      put(next, pages);
      next += pages;
      bytes -= pages;
      continue;
    }
    const size_t part = std::min<uint64_t>(bytes, kBufferBytes - filled_);
    std::memcpy(buffer_.get() + filled_, next, part);
    next += part;
    bytes -= part;
    filled_ += part;
    if (filled_ < kBufferBytes) continue;
    put(buffer_.get(), filled_);
    filled_ = 0;
  }
}

void DirectOutput::finish() {
  set_direct(false);
  write_whole(descriptor_, path_, buffer_.get(), filled_);
  filled_ = 0;
}

void DirectOutput::set_direct(bool is_direct) {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  const bool is_set = ::fcntl(descriptor_, F_SETFL, is_direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
  is_direct_ = is_direct && is_set;
}

// File systems may take the flag and refuse the write, or take a part that ends within a page.
void DirectOutput::put(const std::byte* data, size_t bytes) {
  while (is_direct_ && bytes > 0) {
    const ssize_t put = ::write(descriptor_, data, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno != EINVAL) break;  // to be told by write_whole()
    if (put > 0) {
      data += put;
      bytes -= static_cast<size_t>(put);
    }
    if (put <= 0 || put % static_cast<ssize_t>(kPage) != 0) set_direct(false);
  }
  write_whole(descriptor_, path_, data, bytes);
}

}  // namespace strake
