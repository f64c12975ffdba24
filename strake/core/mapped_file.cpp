#include "strake/core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/file_time.h"

namespace strake {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  require(descriptor >= 0, ErrorKind::kIo, "cannot open {}: {}", path.string(), std::strerror(errno));
  struct stat status{};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  if (regular && status.st_size > 0) {
    size_ = static_cast<size_t>(status.st_size);
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
    if (address != MAP_FAILED) data_ = static_cast<const std::byte*>(address);
  }
  const int reason = errno;
  const bool is_mapped = regular && (size_ == 0 || data_ != nullptr);
  if (!is_mapped) ::close(descriptor);
  require(regular, ErrorKind::kIo, "{} is not a regular file", path.string());
  require(is_mapped, ErrorKind::kIo, "cannot map {}: {}", path.string(), std::strerror(reason));
  descriptor_ = descriptor;
  modified_ = nanoseconds(status.st_mtim);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      modified_(other.modified_) {}

bool MappedFile::has_changed() const {
  struct stat status{};
  const bool is_known = ::fstat(descriptor_, &status) == 0;
  return is_known && (static_cast<size_t>(status.st_size) != size_ || nanoseconds(status.st_mtim) != modified_);
}

void MappedFile::let_go(std::span<const std::byte> part) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t before = (page - reinterpret_cast<uintptr_t>(part.data()) % page) % page;
  if (part.size() < before + page) return;
  const std::span<const std::byte> pages = part.subspan(before);
  ::madvise(const_cast<std::byte*>(pages.data()), pages.size() / page * page, MADV_DONTNEED);
}

}  // namespace strake
