#include "strake/inference/packed_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "strake/core/clock.h"
#include "strake/core/crc32c.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/file_time.h"
#include "strake/core/log.h"
#include "strake/core/mapped_file.h"
#include "strake/core/threads.h"

namespace strake::inference {
namespace fs = std::filesystem;
namespace {

using tensors::NamedTensor;
using tensors::SafetensorsFile;

constexpr const char* kFolder = "strake_packed";
constexpr const char* kLockFile = "lock";
constexpr const char* kFormat = "strake packed weights 1, release " STRAKE_RELEASE;
// Keys of the metadata.
constexpr const char* kFormatKey = "format";
constexpr const char* kArraysKey = "arrays";
constexpr const char* kWeightsKey = "weights";
constexpr const char* kInodesKey = "weight_inodes";
constexpr const char* kNotesKey = "notes";
constexpr const char* kChecksumKey = "crc32c";

constexpr int64_t kNanosecond = 1'000'000'000;
constexpr double kLongestWait = 30;  // seconds
constexpr auto kPause = std::chrono::milliseconds(10);

struct stat status_of(const fs::path& path) {
  struct stat status{};
  const bool known = ::stat(path.c_str(), &status) == 0;
  require(known, ErrorKind::kIo, "cannot stat {}: {}", path.string(), std::strerror(errno));
  return status;
}

// Device, inode, size and times of the last changes, of contents and of the inode.
std::string inodes_of(const std::vector<fs::path>& files) {
  std::string text;
  for (const fs::path& path : files) {
    const struct stat status = status_of(path);
    text += fmt::format("{}:{}:{}:{}:{} ", status.st_dev, status.st_ino, status.st_size, nanoseconds(status.st_mtim),
                        nanoseconds(status.st_ctim));
  }
  return text;
}

// Waits until a change of the files from now on gets another time than their last one has. False if that is not to be
// had: the time is in the future, or the file system's clock is too coarse to wait for.
bool wait_until_changes_show(const std::vector<fs::path>& files) {
  constexpr int64_t kTick = 50'000'000;  // the kernel's clock for files goes by up to 10 ms at a time
  for (const fs::path& path : files) {
    const int64_t changed = nanoseconds(status_of(path).st_ctim);
    const int64_t step = changed % kNanosecond == 0 ? 2 * kNanosecond : kTick;
    const int64_t now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    if (changed > now) return false;
    if (changed + step > now) std::this_thread::sleep_for(std::chrono::nanoseconds(changed + step - now));
  }
  return true;
}

// Of pieces of some megabytes each, taken together: the same for any number of threads.
uint32_t checksum_of(const std::vector<std::span<const std::byte>>& arrays) {
  constexpr size_t kPiece = size_t{4} << 20;
  std::vector<std::span<const std::byte>> pieces;
  for (const auto array : arrays) {
    for (size_t at = 0; at < array.size(); at += kPiece) {
      pieces.push_back(array.subspan(at, std::min(kPiece, array.size() - at)));
    }
  }
  std::vector<uint32_t> sums(pieces.size());
  parallel_for(std::ssize(pieces), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      sums[i] = crc32c(pieces[i].data(), pieces[i].size());
    }
  });
  return crc32c(sums.data(), sums.size() * sizeof(uint32_t));
}

std::string contents_of(const std::vector<fs::path>& files) {
  std::string text;
  for (const fs::path& path : files) {
    const MappedFile file(path);
    text += fmt::format("{:08x}-{} ", checksum_of({file.bytes()}), file.size());
  }
  return text;
}

// Of arrays by name and notes. All other bits of the header are looked at when it is read.
std::string checksum_of(std::vector<NamedTensor> arrays, const std::string& notes) {
  std::ranges::sort(arrays, {}, &NamedTensor::first);
  std::vector<std::span<const std::byte>> bytes;
  for (const auto& [name, array] : arrays) {
    bytes.emplace_back(static_cast<const std::byte*>(array.const_data_ptr()), array.nbytes());
  }
  return fmt::format("{:08x}-{:08x}", checksum_of(bytes), crc32c(notes.data(), notes.size()));
}

std::string metadata_of(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? std::string() : found->second;
}

std::vector<NamedTensor> arrays_of(const SafetensorsFile& file) {
  std::vector<NamedTensor> arrays;
  for (const auto& [name, info] : file.tensors()) arrays.emplace_back(name, file.read(name));
  return arrays;
}

void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_atomic_leftover(entry->path().filename().string())) leftovers.push_back(entry->path());
  }
  for (const fs::path& path : leftovers) fs::remove(path, error);
}

}  // namespace

PackedFile::PackedFile(const fs::path& model, Identity identity, std::vector<fs::path> weights)
    : path_(model / kFolder / (identity.name + ".packed")),
      identity_(std::move(identity)),
      weights_(std::move(weights)) {}

std::unique_ptr<SafetensorsFile> PackedFile::open() const {
  if (!is_there(path_)) return nullptr;
  try {
    auto file = std::make_unique<SafetensorsFile>(path_);
    const auto metadata = [&](const char* key) { return metadata_of(*file, key); };
    const auto check = [&](bool ok, const char* problem) {
      require(ok, ErrorKind::kConfig, "{} {}", path_.string(), problem);
    };
    check(metadata(kFormatKey) == kFormat, "is of another release of strake");
    check(metadata(kArraysKey) == identity_.arrays, "is for another processor or model");
    check(metadata(kInodesKey) == inodes_of(weights_) || metadata(kWeightsKey) == contents_of(weights_),
          "is of other weights than the model's");
    check(metadata(kChecksumKey) == checksum_of(arrays_of(*file), notes_of(*file)), "is damaged: its checksum differs");
    return file;
  } catch (const Error& error) {
    log::info("packed weights are not used: {}", error.what());
    return nullptr;
  }
}

std::string PackedFile::notes_of(const SafetensorsFile& file) { return metadata_of(file, kNotesKey); }

PackedFile::Turn::Turn(Turn&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      waited_(other.waited_),
      weights_before_(std::move(other.weights_before_)) {}

PackedFile::Turn::~Turn() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::optional<PackedFile::Turn> PackedFile::take_turn() const {
  const auto start = Clock::now();
  try {
    strake::create_directories(path_.parent_path());
    const fs::path lock = path_.parent_path() / kLockFile;
    Turn turn(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
    require(turn.descriptor_ >= 0, ErrorKind::kIo, "{}", std::strerror(errno));
    while (::flock(turn.descriptor_, LOCK_EX | LOCK_NB) != 0) {
      require(errno == EWOULDBLOCK || errno == EINTR, ErrorKind::kIo, "{}", std::strerror(errno));
      require(seconds_since(start) < kLongestWait, ErrorKind::kIo, "another process has locked it for long");
      turn.waited_ = true;
      std::this_thread::sleep_for(kPause);
    }
    require(wait_until_changes_show(weights_), ErrorKind::kIo,
            "the weights were changed in the future, says their time");
    turn.weights_before_ = inodes_of(weights_);
    return turn;
  } catch (const Error& error) {
    log::info("packed weights are not kept in {}: {}", path_.parent_path().string(), error.what());
    return std::nullopt;
  }
}

bool PackedFile::write(const Turn& turn, std::vector<NamedTensor> arrays, const std::string& notes) const {
  const auto start = Clock::now();
  remove_leftovers(path_.parent_path());
  // Arrays of whole cache lines first: each begins on one then.
  std::ranges::stable_partition(arrays, [](const NamedTensor& array) { return array.second.nbytes() % 64 == 0; });
  try {
    std::map<std::string, std::string> metadata{{kFormatKey, kFormat},
                                                {kArraysKey, identity_.arrays},
                                                {kWeightsKey, contents_of(weights_)},
                                                {kInodesKey, turn.weights_before_},
                                                {kNotesKey, notes},
                                                {kChecksumKey, checksum_of(arrays, notes)}};
    require(inodes_of(weights_) == turn.weights_before_, ErrorKind::kIo, "the weights changed while they were read");
    tensors::write_safetensors(path_, arrays, metadata);
  } catch (const Error& error) {
    log::info("packed weights are not kept: {}", error.what());
    return false;
  }
  log::info("packed weights kept in {} for later starts, in {:.1f} s (--packed_weights off does without)",
            path_.string(), seconds_since(start));
  return true;
}

}  // namespace strake::inference
