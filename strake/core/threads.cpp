#include "strake/core/threads.h"

#include <sched.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "strake/core/control_groups.h"
#include "strake/core/error.h"

namespace strake {
namespace {

namespace fs = std::filesystem;

int cores_of_affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  return sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

// Of the processor time that a group may take: microseconds in a period of so many. None without a limit, which is
// "max" or -1.
std::optional<int64_t> whole_cores(const ControlGroup& group) {
  int64_t quota = 0;
  int64_t period = 0;
  if (group.is_version_2) {
    std::ifstream(group.folder / "cpu.max") >> quota >> period;
  } else {
    std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group.folder / "cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

int available_cores(const fs::path& root, const fs::path& membership) {
  int64_t cores = cores_of_affinity();
  for (const ControlGroup& group : control_groups("cpu", root, membership)) {
    cores = std::min(cores, whole_cores(group).value_or(cores));
  }
  return static_cast<int>(std::max<int64_t>(1, cores));
}

int threads_per_rank(int ranks_on_host) {
  const char* text = std::getenv("STRAKE_NUM_THREADS");
  if (text != nullptr && *text != '\0') {
    int threads = 0;
    const char* end = text + std::strlen(text);
    const auto parsed = std::from_chars(text, end, threads);
    require(parsed.ec == std::errc{} && parsed.ptr == end && threads >= 1 && threads <= 4096, ErrorKind::kUsage,
            "STRAKE_NUM_THREADS={} is not a number of threads", text);
    return threads;
  }
  return std::max(1, available_cores() / std::max(1, ranks_on_host));
}

void run_side_by_side(int count, const std::function<void(int id)>& run) {
  const int threads = num_threads();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
  const auto run_one = [&](int id) {
    set_num_threads(std::max(1, threads * (id + 1) / count - threads * id / count));
    try {
      run(id);
    } catch (...) {
      errors[static_cast<size_t>(id)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int id = 1; id < count; ++id) helpers.emplace_back(run_one, id);
    if (count > 0) run_one(0);
  }
  set_num_threads(threads);
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace strake
