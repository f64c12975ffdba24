#include "strake/monitor/metrics_log.h"

#include <string>
#include <string_view>
#include <system_error>

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

MetricsLog MetricsLog::start(const fs::path& path) {
  return MetricsLog(AppendedFile(path, AppendedFile::Beginning::kEmpty));
}

MetricsLog MetricsLog::resume(const fs::path& path, int64_t step) {
  std::error_code absent;
  if (fs::exists(path, absent)) {
    const std::string text = read_file(path, kMaxLogBytes);
    const std::string kept = lines_up_to(text, step, path);
    if (kept.size() != text.size()) write_file_atomically(path, kept);
  }
  return MetricsLog(AppendedFile(path, AppendedFile::Beginning::kAsItIs));
}

void MetricsLog::append(const Json& object) { file_.append(json_text(object) + "\n"); }

}  // namespace strake::monitor
