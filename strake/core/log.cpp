#include "strake/core/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>

#include "strake/core/error.h"

namespace strake::log {
namespace {

std::atomic<Level> current_level{Level::kInfo};
thread_local int current_rank = 0;

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = std::make_shared<spdlog::logger>("strake", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->set_pattern("[%H:%M:%S %l %v");  // the message closes the bracket after the rank
    created->set_level(spdlog::level::debug);
    return created;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

Level parse_level(std::string_view name) {
  if (name == "debug") return Level::kDebug;
  if (name == "info") return Level::kInfo;
  if (name == "warning") return Level::kWarning;
  if (name == "error") return Level::kError;
  fail(ErrorKind::kUsage, "log level '{}' is none of debug, info, warning, error", name);
}

void set_level(Level level) { current_level = level; }
void set_rank(int rank) { current_rank = rank; }
int rank() { return current_rank; }

void write(Level level, const std::string& message) {
  const Level lowest = current_rank == 0 ? current_level.load() : std::max(current_level.load(), Level::kWarning);
  if (level < lowest) return;
  logger().log(to_spdlog(level), "r{}] {}", current_rank, message);
}

}  // namespace strake::log
