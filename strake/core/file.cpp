#include "strake/core/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "strake/core/direct_output.h"
#include "strake/core/error.h"
#include "strake/core/parse_integer.h"

namespace strake {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTemporaryMark = ".tmp";

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool is_plain_name(const std::string& name) {
  constexpr size_t kLongestName = 255;
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

// Cuts "-<digits>" off the end of `name`; false if it does not end so.
bool drop_number(std::string_view& name) {
  const size_t kept = name.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
  if (kept == 0 || kept == name.size() || name[kept - 1] != '-') return false;
  name = name.substr(0, kept - 1);
  return true;
}

bool is_synced_by(int (*sync)(int), int file) {
  int result = 0;
  do {
    result = sync(file);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

bool is_below(const fs::path& path, const fs::path& directory) {
  const auto [end, rest] = std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return end == directory.end();
}

}  // namespace

std::string read_file(const fs::path& path, uint64_t max_bytes) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  require(file.get() >= 0, ErrorKind::kIo, "cannot open {}: {}", path.string(), std::strerror(errno));
  struct stat status{};
  const bool is_known = ::fstat(file.get(), &status) == 0;  // before errno is read: arguments have no order
  require(is_known, ErrorKind::kIo, "cannot stat {}: {}", path.string(), std::strerror(errno));
  require(S_ISREG(status.st_mode), ErrorKind::kIo, "{} is not a regular file", path.string());
  const auto size = static_cast<uint64_t>(status.st_size);
  require(size <= max_bytes, ErrorKind::kIo, "{} has {} bytes; at most {} are accepted for such a file", path.string(),
          size, max_bytes);
  std::string content(size, '\0');
  uint64_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.get(), content.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    require(got > 0, ErrorKind::kIo, "reading {} stopped at byte {} of {}: {}", path.string(), done, size,
            got == 0 ? "file became shorter" : std::strerror(errno));
    done += static_cast<uint64_t>(got);
  }
  return content;
}

fs::path resolve_inside(const fs::path& directory, const std::string& name, const std::string& source) {
  require(is_plain_name(name), ErrorKind::kConfig,
          "{}: file name '{}' must be one plain name of letters, digits, '.', '_' and '-' inside {}", source,
          printable(name), directory.string());
  const fs::path path = directory / name;
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  const fs::path real = fs::weakly_canonical(path, error);
  const fs::path root = fs::weakly_canonical(directory, error);
  // Hub cache: models--x/snapshots/<commit>/file -> ../../blobs/<hash>
  const fs::path cache_blobs = root.parent_path().parent_path() / "blobs";
  const bool in_cache = root.parent_path().filename() == "snapshots" && is_below(real, cache_blobs);
  require(is_below(real, root) || in_cache, ErrorKind::kConfig,
          "{}: '{}' is a symbolic link that leaves {}: copy the file, or put it into that folder", source, name,
          directory.string());
  return path;
}

void sync_directory(const fs::path& directory) {
  const fs::path target = directory.empty() ? fs::path(".") : directory;
  const Descriptor handle(::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool is_synced = handle.get() >= 0 && sync_file(handle.get());
  require(is_synced, ErrorKind::kIo, "cannot sync directory {}: {}", target.string(), std::strerror(errno));
}

void create_directories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  require(!error, ErrorKind::kIo, "cannot create directory {}: {}", directory.string(), error.message());
  require(fs::is_directory(directory, error), ErrorKind::kIo, "{} exists and is not a directory", directory.string());
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool look_for(const fs::path& path) {
  std::error_code error;
  const bool found = fs::exists(path, error);
  require(!error, ErrorKind::kIo, "cannot find out whether {} is there: {}", path.string(), error.message());
  return found;
}

bool sync_file(int file) { return is_synced_by(&::fsync, file); }
bool sync_data(int file) { return is_synced_by(&::fdatasync, file); }

int reserve_space(int file, uint64_t bytes) {
  int result = 0;
  do {
    result = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  } while (result == EINTR);
  return result;
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  static std::atomic<uint64_t> counter{0};
  constexpr int kMostLeftovers = 10'000;
  int tries = 0;
  // In containers processes get the numbers of killed ones, which may have left such files.
  do {
    temporary_ = path_;
    temporary_ += fmt::format("{}-{}-{}", kTemporaryMark, ::getpid(), counter++);
    descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST && ++tries < kMostLeftovers);
  require(descriptor_ >= 0, ErrorKind::kIo, "cannot write {}: {}", path_.string(), std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  direct_.reset();  // a buffer may still be on its way to the descriptor
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::reserve(uint64_t bytes) {
  if (bytes == 0) return;
  const int result = reserve_space(descriptor_, bytes);
  require(result == 0 || result == EOPNOTSUPP || result == EINVAL, ErrorKind::kIo, "cannot reserve {} bytes for {}: {}",
          bytes, path_.string(), std::strerror(result));
  constexpr uint64_t kLarge = uint64_t{16} << 20;
  if (bytes >= kLarge) direct_ = std::make_unique<DirectOutput>(descriptor_, path_);
}

void AtomicFile::write(const void* data, uint64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const uint64_t piece = std::min<uint64_t>(bytes, DirectOutput::kBufferBytes);
    if (direct_ != nullptr) {
      direct_->append(next, piece);
    } else {
      write_whole(descriptor_, path_, next, piece);
    }
    sum_ = {.bytes = sum_.bytes + piece, .crc = crc32c(next, piece, sum_.crc)};
    next += piece;
    bytes -= piece;
  }
}

void AtomicFile::commit() {
  if (direct_ != nullptr) direct_->finish();
  const bool is_synced = sync_file(descriptor_);
  require(is_synced, ErrorKind::kIo, "cannot sync {}: {}; the previous file is unchanged", path_.string(),
          std::strerror(errno));
  const bool is_renamed = ::rename(temporary_.c_str(), path_.c_str()) == 0;
  require(is_renamed, ErrorKind::kIo, "cannot rename {} to {}: {}", temporary_.string(), path_.string(),
          std::strerror(errno));
  ::close(descriptor_);
  descriptor_ = -1;
  sync_directory(path_.parent_path());
}

bool is_atomic_leftover(std::string_view name) {
  const bool has_process = drop_number(name);
  const bool has_count = has_process && drop_number(name);
  return has_count && name.size() > kTemporaryMark.size() && name.ends_with(kTemporaryMark);
}

bool is_abandoned(std::string_view name) {
  if (!is_atomic_leftover(name)) return false;
  const std::string_view numbers = name.substr(name.rfind(kTemporaryMark) + kTemporaryMark.size() + 1);
  const auto process = parse_integer<pid_t>(numbers.substr(0, numbers.find('-')));
  return process && (*process == ::getpid() || (::kill(*process, 0) != 0 && errno == ESRCH));
}

void remove_atomic_leftovers(const fs::path& path) {
  const std::string mark = path.filename().string() + std::string(kTemporaryMark) + "-";
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(mark) && is_abandoned(name)) leftovers.push_back(entry->path());
  }
  for (const fs::path& leftover : leftovers) {
    const bool is_removed = ::unlink(leftover.c_str()) == 0 || errno == ENOENT;
    require(is_removed, ErrorKind::kIo, "cannot remove {}: {}", leftover.string(), std::strerror(errno));
  }
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

// getrusage() has the peak too, but a program takes it over from the process that started it; some sandboxes have
// nothing else.
uint64_t peak_resident_bytes() {
  constexpr uint64_t kKibibyte = 1024;
  constexpr std::string_view kKey = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kKey)) return kKibibyte * std::strtoull(line.c_str() + kKey.size(), nullptr, 10);
  }
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return kKibibyte * static_cast<uint64_t>(usage.ru_maxrss);
}

}  // namespace strake
