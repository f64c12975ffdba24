#include "strake/scoring/model_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <vector>

#include "strake/core/crc32c.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/json.h"

namespace strake::scoring {
namespace fs = std::filesystem;

std::string ModelFingerprint::text() const {
  return fmt::format("{:08x}-{:08x}-{}", config_crc32c, weight_crc32c, weight_bytes);
}

ModelFingerprint fingerprint_of(const fs::path& folder) {
  constexpr int64_t kWhole = std::numeric_limits<int64_t>::max();
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".safetensors") files.push_back(entry->path());
  }
  require(!error, ErrorKind::kIo, "cannot list {}: {}", folder.string(), error.message());
  std::ranges::sort(files);
  const std::string config = read_file(folder / "config.json", kMaxConfigBytes);
  ModelFingerprint fingerprint{.config_crc32c = crc32c(config.data(), config.size())};
  for (const fs::path& path : files) {
    fingerprint.weight_bytes += static_cast<int64_t>(fs::file_size(path));
    fingerprint.weight_crc32c = crc32c_of_file(path, 0, kWhole, fingerprint.weight_crc32c);
  }
  return fingerprint;
}

}  // namespace strake::scoring
