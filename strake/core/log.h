#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

// Log lines go to stderr as "[time level r<rank>] message"; stdout belongs to results.
namespace strake::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// Level from the names debug, info, warning, error; an Error of kind kUsage otherwise.
Level parse_level(std::string_view name);

// Rank 0 logs at `level`, other ranks from warnings on. The rank is a property of the calling thread, because ranks may
// be threads of one process.
void set_level(Level level);
void set_rank(int rank);
int rank();

void write(Level level, const std::string& message);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace strake::log
