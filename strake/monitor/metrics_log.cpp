#include "strake/monitor/metrics_log.h"

#include <string>
#include <system_error>

#include "strake/core/file.h"
#include "strake/core/log.h"

namespace strake::monitor {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxLogBytes = uint64_t{1} << 30;

std::string line_of(const Json& object) { return json_text(object) + "\n"; }

}  // namespace

MetricsLog MetricsLog::start(const fs::path& path) {
  return MetricsLog(AppendedFile(path, AppendedFile::Beginning::kEmpty));
}

MetricsLog MetricsLog::resume(const fs::path& path, std::span<const Json> entries) {
  std::string expected;
  for (const Json& entry : entries) {
    if (!entry.contains("train_runtime")) expected += line_of(entry);
  }
  std::error_code absent;
  const uintmax_t bytes = fs::file_size(path, absent);
  const std::string text = absent || bytes > kMaxLogBytes ? "" : read_file(path, kMaxLogBytes);
  size_t found = text.find(expected);
  while (found != std::string::npos && found > 0 && text[found - 1] != '\n') found = text.find(expected, found + 1);
  const bool is_found = found != std::string::npos;
  if (!absent && !is_found) {
    log::warning("{} lacked, or had otherwise, some of what was logged before: it is written anew", path.string());
  }
  const std::string kept = is_found ? text.substr(0, found + expected.size()) : expected;
  if (text != kept) write_file_atomically(path, kept);
  return MetricsLog(AppendedFile(path, AppendedFile::Beginning::kAsItIs));
}

void MetricsLog::append(const Json& object) { file_.append(line_of(object)); }

}  // namespace strake::monitor
