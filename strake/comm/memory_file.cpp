#include "strake/comm/memory_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/memory.h"

namespace strake::comm {
namespace {

constexpr char kName[] = "strake";  // as /proc shows it

[[noreturn]] void fail_to_share(size_t bytes, int error) {
  fail(ErrorKind::kIo, "cannot have {} bytes of memory in common with the other ranks: {}", bytes,
       std::strerror(error));
}

}  // namespace

MemoryFile MemoryFile::make(size_t bytes) {
  MemoryFile file(::memfd_create(kName, MFD_CLOEXEC), bytes);
  if (file.descriptor_ < 0) fail_to_share(bytes, errno);
  if (::ftruncate(file.descriptor_, static_cast<off_t>(bytes)) != 0) fail_to_share(bytes, errno);
  return file;
}

std::optional<MemoryFile> MemoryFile::find(const Place& place, size_t bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", place.process, place.descriptor);
  // On another host this may be anything, of which nothing must be opened.
  std::error_code error;
  if (!std::filesystem::read_symlink(path, error).string().starts_with(fmt::format("/memfd:{}", kName))) return {};
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  MemoryFile file(descriptor, bytes);
  struct stat facts{};
  const bool is_there = ::fstat(descriptor, &facts) == 0 && static_cast<int64_t>(facts.st_dev) == place.device &&
                        static_cast<int64_t>(facts.st_ino) == place.inode &&
                        static_cast<size_t>(facts.st_size) == bytes;
  if (!is_there) return std::nullopt;
  return file;
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}

MemoryFile::~MemoryFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

MemoryFile::Place MemoryFile::place() const {
  struct stat facts{};
  if (::fstat(descriptor_, &facts) != 0) fail_to_share(bytes_, errno);
  return {.process = ::getpid(),
          .descriptor = descriptor_,
          .device = static_cast<int64_t>(facts.st_dev),
          .inode = static_cast<int64_t>(facts.st_ino)};
}

std::shared_ptr<void> MemoryFile::map() const {
  void* const data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (data == MAP_FAILED) fail_to_share(bytes_, errno);
  ask_for_huge_pages(data, bytes_);
  return {data, [bytes = bytes_](void* mapped) { ::munmap(mapped, bytes); }};
}

}  // namespace strake::comm
