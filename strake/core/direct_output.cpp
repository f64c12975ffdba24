#include "strake/core/direct_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

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

DirectOutput::DirectOutput(int descriptor, const std::filesystem::path& path) : descriptor_(descriptor), path_(path) {
  for (auto* buffer : {&filling_, &writing_}) {
    buffer->reset(static_cast<std::byte*>(std::aligned_alloc(kPage, kBufferBytes)));
    require(*buffer != nullptr, ErrorKind::kIo, "cannot write {}: no memory for a buffer of {} bytes", path.string(),
            kBufferBytes);
  }
  set_direct(true);
}

void DirectOutput::append(const void* data, uint64_t bytes) {
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    if (filled_ == 0 && bytes >= kPage && reinterpret_cast<uintptr_t>(next) % kPage == 0) {
      const size_t pages = std::min<uint64_t>(bytes, 2 * kBufferBytes) / kPage * kPage;
      wait();
      put(next, pages);
      next += pages;
      bytes -= pages;
      continue;
    }
    const size_t part = std::min<uint64_t>(bytes, kBufferBytes - filled_);
    std::memcpy(filling_.get() + filled_, next, part);
    next += part;
    bytes -= part;
    filled_ += part;
    if (filled_ < kBufferBytes) continue;
    wait();
    std::swap(filling_, writing_);
    filled_ = 0;
    const auto write = [this] { put(writing_.get(), kBufferBytes); };
    try {
      written_ = std::async(std::launch::async, write);
    } catch (const std::system_error&) {  // no thread is to be had
      write();
    }
  }
}

void DirectOutput::wait() {
  if (written_.valid()) written_.get();
}

void DirectOutput::finish() {
  wait();
  set_direct(false);
  write_whole(descriptor_, path_, filling_.get(), filled_);
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
