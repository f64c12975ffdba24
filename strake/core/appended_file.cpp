#include "strake/core/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"

namespace strake {
namespace {

int flags_of(AppendedFile::Beginning beginning) {
  switch (beginning) {
    case AppendedFile::Beginning::kNew:
      return O_EXCL;
    case AppendedFile::Beginning::kEmpty:
      return O_TRUNC;
    case AppendedFile::Beginning::kAsItIs:
      return 0;
  }
  return 0;
}

}  // namespace

AppendedFile::AppendedFile(std::filesystem::path path, Beginning beginning)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags_of(beginning), 0666)) {
  require(descriptor_ >= 0, ErrorKind::kIo, "cannot write {}: {}", path_.string(), std::strerror(errno));
}

AppendedFile::AppendedFile(AppendedFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendedFile::~AppendedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendedFile::open_again_if_removed() {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0 || status.st_nlink > 0) return;
  log::warning("{} was removed while it is written; it goes on without what it held", path_.string());
  if (path_.has_parent_path()) strake::create_directories(path_.parent_path());
  AppendedFile again(path_, Beginning::kAsItIs);
  std::swap(descriptor_, again.descriptor_);
}

void AppendedFile::append(std::string_view piece) {
  open_again_if_removed();
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);
  std::string_view rest = piece;
  int reason = 0;
  // Of a piece that space or a limit has cut the next write says which.
  while (!rest.empty() && reason == 0) {
    const ssize_t put = ::write(descriptor_, rest.data(), rest.size());
    if (put > 0) rest.remove_prefix(static_cast<size_t>(put));
    if (put == 0) reason = ENOSPC;
    if (put < 0 && errno != EINTR) reason = errno;
  }
  if (reason == 0) return;
  const bool restored = rest.size() == piece.size() || ::ftruncate(descriptor_, end) == 0;
  fail(ErrorKind::kIo, "cannot append to {}: {}{}", path_.string(), std::strerror(reason),
       restored ? "" : "; what it ends with is incomplete");
}

}  // namespace strake
