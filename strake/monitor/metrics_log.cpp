#include "strake/monitor/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "strake/core/file.h"
#include "strake/core/log.h"

namespace strake::monitor {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxLogBytes = uint64_t{1} << 30;

enum class Line { kKept, kWrittenAgain, kTorn };

Line judge(std::string_view line, int64_t step) {
  Json object;
  try {
    object = parse_json(line, "line");
  } catch (const Error&) {
    return Line::kTorn;
  }
  if (!object.is_object()) return Line::kTorn;
  const auto found = object.find("step");
  const bool beyond = found != object.end() && found->is_number() && found->get<double>() > static_cast<double>(step);
  return beyond || object.contains("train_runtime") ? Line::kWrittenAgain : Line::kKept;
}

// The lines of `text` that belong to updates up to `step`, but for the closing one.
std::string lines_up_to(std::string_view text, int64_t step, const fs::path& path) {
  std::string kept;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const bool complete = end != std::string_view::npos;
    const std::string_view line = text.substr(0, end);
    const Line verdict = complete ? judge(line, step) : Line::kTorn;
    if (verdict == Line::kKept) kept.append(line).push_back('\n');
    if (verdict == Line::kTorn) log::warning("{}:{}: removed a line that is not a JSON object", path.string(), number);
    text.remove_prefix(complete ? end + 1 : text.size());
  }
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(const fs::path& path, int flags)
    : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666)) {
  require(descriptor_ >= 0, ErrorKind::kIo, "cannot write {}: {}", path.string(), std::strerror(errno));
}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

MetricsLog::~MetricsLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

MetricsLog MetricsLog::start(const fs::path& path) { return {path, O_TRUNC}; }

MetricsLog MetricsLog::resume(const fs::path& path, int64_t step) {
  std::error_code absent;
  if (fs::exists(path, absent)) {
    const std::string text = read_file(path, kMaxLogBytes);
    const std::string kept = lines_up_to(text, step, path);
    if (kept.size() != text.size()) write_file_atomically(path, kept);
  }
  return {path, 0};
}

void MetricsLog::append(const Json& object) {
  const std::string line = json_text(object) + "\n";
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);
  ssize_t put = 0;
  do {
    put = ::write(descriptor_, line.data(), line.size());
  } while (put < 0 && errno == EINTR);
  if (put == static_cast<ssize_t>(line.size())) return;
  const int reason = put < 0 ? errno : ENOSPC;  // a regular file takes a part only when space or a limit ends
  const bool restored = put <= 0 || ::ftruncate(descriptor_, end) == 0;
  fail(ErrorKind::kIo, "cannot append to {}: {}{}", path_.string(), std::strerror(reason),
       restored ? "" : "; its last line is incomplete");
}

}  // namespace strake::monitor
