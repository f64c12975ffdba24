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

namespace strake::comm {
namespace {

constexpr char kName[] = "strake";         // as /proc shows it
constexpr unsigned kNoExecution = 0x0008;  // MFD_NOEXEC_SEAL of Linux 6.3, which a system may insist on

[[noreturn]] void fail_to_share(size_t bytes, const std::string& reason) {
  fail(ErrorKind::kIo, "cannot have {} bytes of memory in common with the other ranks: {}", bytes, reason);
}

int create_file() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int descriptor = ::memfd_create(kName, kFlags | kNoExecution);
  return descriptor < 0 && errno == EINVAL ? ::memfd_create(kName, kFlags) : descriptor;
}

// Takes the pages, so that a lack of them is an error here instead of a signal where they are used.
void touch(char* data, size_t count, size_t bytes) {
  if (count == 0 || ::madvise(data, count, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) return;
  fail_to_share(bytes, errno == EFAULT ? "there is not enough memory" : std::strerror(errno));
}

}  // namespace

MemoryFile MemoryFile::make(size_t bytes) {
  MemoryFile file(create_file(), bytes);
  if (file.descriptor_ < 0) fail_to_share(bytes, std::strerror(errno));
  if (::ftruncate(file.descriptor_, static_cast<off_t>(bytes)) != 0) fail_to_share(bytes, std::strerror(errno));
  // Nobody takes away what is mapped.
  if (::fcntl(file.descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    fail_to_share(bytes, std::strerror(errno));
  return file;
}

MemoryFile MemoryFile::find(const Place& place, size_t bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", place.process, place.descriptor);
  // On another host this may be anything, of which nothing must be opened.
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(path, error).string();
  if (error) fail_to_share(bytes, fmt::format("{} of rank 0: {}", path, error.message()));
  const std::string not_the_one = fmt::format("{} is not rank 0's", path);
  if (!target.starts_with(fmt::format("/memfd:{}", kName))) fail_to_share(bytes, not_the_one);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail_to_share(bytes, fmt::format("{} of rank 0: {}", path, std::strerror(errno)));
  MemoryFile file(descriptor, bytes);
  struct stat facts{};
  const bool is_there = ::fstat(descriptor, &facts) == 0 && static_cast<int64_t>(facts.st_dev) == place.device &&
                        static_cast<int64_t>(facts.st_ino) == place.inode &&
                        static_cast<size_t>(facts.st_size) == bytes;
  if (!is_there) fail_to_share(bytes, not_the_one);
  return file;
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}

MemoryFile::~MemoryFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

MemoryFile::Place MemoryFile::place() const {
  struct stat facts{};
  if (::fstat(descriptor_, &facts) != 0) fail_to_share(bytes_, std::strerror(errno));
  return {.process = ::getpid(),
          .descriptor = descriptor_,
          .device = static_cast<int64_t>(facts.st_dev),
          .inode = static_cast<int64_t>(facts.st_ino)};
}

std::shared_ptr<void> MemoryFile::map(size_t begin, size_t count) const {
  void* const data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (data == MAP_FAILED) fail_to_share(bytes_, std::strerror(errno));
  std::shared_ptr<void> mapped(data, [bytes = bytes_](void* all) { ::munmap(all, bytes); });
  ::madvise(data, bytes_, MADV_HUGEPAGE);  // advice: a refusal is no error
  const size_t before = begin % static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  touch(static_cast<char*>(data) + begin - before, count == 0 ? 0 : count + before, bytes_);
  return mapped;
}

}  // namespace strake::comm
