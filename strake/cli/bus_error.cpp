#include "strake/cli/bus_error.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "strake/core/error.h"

namespace strake::cli {
namespace {

// What a handler of signals may do: no memory, no locks.
void say(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

// A line of /proc/self/maps: "7f0c-7f0d r--s 00000000 fe:01 12  /path". The path if the address is in it, else "".
std::string_view path_at(std::string_view line, uintptr_t address) {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  const auto [dash, error] = std::from_chars(line.begin(), line.end(), begin, 16);
  if (error != std::errc() || dash == line.end()) return "";
  if (std::from_chars(dash + 1, line.end(), end, 16).ec != std::errc() || address < begin || address >= end) return "";
  const size_t path = line.find('/');
  return path == std::string_view::npos ? "" : line.substr(path);
}

void say_path_at(uintptr_t address) {
  static std::array<char, 8192> buffer;
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  size_t kept = 0;
  for (ssize_t got = 0; (got = ::read(maps, buffer.data() + kept, buffer.size() - kept)) > 0;) {
    std::string_view text(buffer.data(), kept + static_cast<size_t>(got));
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      const std::string_view path = path_at(text.substr(0, end), address);
      if (!path.empty()) return say(path);
      text.remove_prefix(end + 1);
    }
    kept = text.size() < buffer.size() ? text.size() : 0;
    std::copy_n(text.begin(), kept, buffer.begin());  // towards the front
  }
  say("a file");
}

void end_with_message(int /*signal*/, siginfo_t* info, void* /*context*/) {
  say("strake: file error: ");
  say_path_at(reinterpret_cast<uintptr_t>(info->si_addr));
  say(" was cut short, or cannot be read any more, while it was in use\n");
  ::_exit(exit_code(ErrorKind::kIo));
}

}  // namespace

void name_files_that_are_cut() {
  struct sigaction action{};
  action.sa_sigaction = &end_with_message;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace strake::cli
