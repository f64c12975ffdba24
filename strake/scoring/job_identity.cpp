#include "strake/scoring/job_identity.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "strake/core/crc32c.h"
#include "strake/core/error.h"
#include "strake/data/text_input.h"

namespace strake::scoring {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFileKey = "input file ";

}  // namespace

void add_files(Json& identity, const std::vector<fs::path>& files) {
  constexpr int64_t kChecked = int64_t{64} << 10;  // a Parquet file's footer is at its end
  constexpr size_t kWhole = SIZE_MAX;
  for (size_t i = 0; i < files.size(); ++i) {
    const fs::path& file = files[i];
    data::require_data_file(file);
    struct stat status{};
    const bool is_known = ::stat(file.c_str(), &status) == 0;
    require(is_known, ErrorKind::kIo, "cannot stat {}: {}", file.string(), std::strerror(errno));
    uint32_t checksum = crc32c_of_file(file, 0, kChecked);
    checksum = crc32c_of_file(file, std::max<int64_t>(0, status.st_size - kChecked), kChecked, checksum);
    identity[fmt::format("{}{:05}", kFileKey, i)] =
        fmt::format("{}, modified {}.{:09}", printable(fs::absolute(file).lexically_normal().string(), kWhole),
                    status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    identity[fmt::format("input content {:05}", i)] = fmt::format("{} bytes, crc32c {:08x}", status.st_size, checksum);
  }
}

IdentityDifference difference_of(const Json& before, const Json& now) {
  std::set<std::string> keys;
  for (const Json* job : {&before, &now}) {
    for (const auto& item : job->items()) keys.insert(item.key());
  }
  const auto value_of = [](const Json& job, const std::string& key) {
    constexpr size_t kLongestValue = 500;
    return job.contains(key) ? printable(json_text(job.at(key)), kLongestValue) : std::string("nothing");
  };
  const auto is_other = [&](const std::string& key) {
    return !before.contains(key) || !now.contains(key) || before.at(key) != now.at(key);
  };
  const auto key = std::ranges::find_if(keys, is_other);
  if (key == keys.end()) return {};
  return {.key = *key, .before = value_of(before, *key), .now = value_of(now, *key)};
}

IdentityDifference difference_of_shards(Json other, Json own) {
  for (Json* job : {&other, &own}) {
    job->erase("shard");
    for (auto item = job->begin(); item != job->end();) {
      item = item.key().starts_with(kFileKey) ? job->erase(item) : std::next(item);
    }
  }
  return difference_of(other, own);
}

}  // namespace strake::scoring
