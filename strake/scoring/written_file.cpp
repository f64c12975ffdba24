#include "strake/scoring/written_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "strake/core/error.h"
#include "strake/core/file_time.h"
#include "strake/core/log.h"

namespace strake::scoring {
namespace fs = std::filesystem;
namespace {

// Nothing if there is no such file.
std::optional<struct stat> status_of(const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) return status;
  require(errno == ENOENT, ErrorKind::kIo, "cannot stat {}: {}", path.string(), std::strerror(errno));
  return std::nullopt;
}

}  // namespace

WrittenFile WrittenFile::of(const fs::path& path, int64_t rows, const FileSum& sum) {
  const auto status = status_of(path);
  require(status.has_value(), ErrorKind::kIo, "{} has vanished", path.string());
  return {.name = path.filename().string(), .rows = rows, .sum = sum, .changed = nanoseconds(status->st_ctim)};
}

std::string WrittenFile::difference_in(const fs::path& folder) const {
  const fs::path path = folder / name;
  const auto status = status_of(path);
  if (!status) return "is gone";
  if (!S_ISREG(status->st_mode)) return "is no regular file";
  const auto bytes = static_cast<uint64_t>(status->st_size);
  if (bytes != sum.bytes) return fmt::format("has {} bytes, and had {}", bytes, sum.bytes);
  if (nanoseconds(status->st_ctim) == changed) return "";
  log::info("{} was touched since it was written: comparing its checksum", path.string());
  return crc32c_of_file(path, 0, status->st_size) == sum.crc ? "" : "has other contents: its checksum has changed";
}

Json to_json(const WrittenFile& file) {
  return {{"name", file.name},
          {"rows", file.rows},
          {"bytes", file.sum.bytes},
          {"crc32c", file.sum.crc},
          {"changed", file.changed}};
}

std::vector<WrittenFile> parse_written_files(const Json& manifest, const std::string& source) {
  const Json list = get_required<Json>(manifest, "files", source);
  require(list.is_array(), ErrorKind::kConfig, "{}: key 'files' is no list", source);
  std::vector<WrittenFile> files;
  for (const Json& item : list) {
    require(item.is_object(), ErrorKind::kConfig, "{}: key 'files' holds something that is no object", source);
    WrittenFile file{.name = get_required<std::string>(item, "name", source),
                     .rows = get_required<int64_t>(item, "rows", source),
                     .sum = {.bytes = get_required<uint64_t>(item, "bytes", source),
                             .crc = get_required<uint32_t>(item, "crc32c", source)},
                     .changed = get_required<int64_t>(item, "changed", source)};
    require(fs::path(file.name).filename() == file.name && file.name != "..", ErrorKind::kConfig,
            "{}: '{}' is no name of a file beside it", source, printable(file.name));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace strake::scoring
