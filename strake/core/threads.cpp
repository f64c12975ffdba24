#include "strake/core/threads.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "strake/core/control_groups.h"
#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/core/parse_integer.h"

namespace strake {
namespace {

namespace fs = std::filesystem;

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

std::vector<int> cores_of_process() {
  std::vector<int> cores;
  if (omp_get_proc_bind() != omp_proc_bind_false) {
    for (int place = 0; place < omp_get_num_places(); ++place) {
      std::vector<int> of_place(static_cast<size_t>(omp_get_place_num_procs(place)));
      omp_get_place_proc_ids(place, of_place.data());
      cores.insert(cores.end(), of_place.begin(), of_place.end());
    }
    std::ranges::sort(cores);
    cores.erase(std::ranges::unique(cores).begin(), cores.end());
    return cores;
  }
  // The system refuses masks that are shorter than its own, whose length it does not tell.
  constexpr size_t kMostBytes = size_t{1} << 20;
  for (size_t bytes = sizeof(cpu_set_t); bytes <= kMostBytes; bytes *= 2) {
    std::vector<cpu_set_t> mask(bytes / sizeof(cpu_set_t));
    if (sched_getaffinity(0, bytes, mask.data()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    for (size_t core = 0; core < bytes * 8; ++core) {
      if (CPU_ISSET_S(core, bytes, mask.data())) cores.push_back(static_cast<int>(core));
    }
    return cores;
  }
  log::warning("the system does not say which cores this process may use: {}; one is used", std::strerror(errno));
  return {0};
}

int available_cores(const fs::path& root, const fs::path& membership) {
  auto cores = static_cast<int64_t>(cores_of_process().size());
  for (const ControlGroup& group : control_groups("cpu", root, membership)) {
    cores = std::min(cores, whole_cores(group).value_or(cores));
  }
  return static_cast<int>(std::max<int64_t>(1, cores));
}

int share_of_cores(const std::vector<std::vector<int>>& of_processes, size_t own) {
  constexpr double kRounding = 1e-6;  // of sums such as 1/3 + 1/3 + 1/3
  double share = 0;
  for (const int core : of_processes[own]) {
    share += 1.0 / static_cast<double>(std::ranges::count_if(
                       of_processes, [&](const auto& cores) { return std::ranges::binary_search(cores, core); }));
  }
  return std::max(1, static_cast<int>(share + kRounding));
}

std::optional<int> wanted_threads() {
  const char* text = std::getenv("STRAKE_NUM_THREADS");
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::optional<int> threads = parse_integer<int>(text);
  require(threads && *threads >= 1 && *threads <= 4096, ErrorKind::kUsage,
          "STRAKE_NUM_THREADS={} is not a number of threads", printable(text));
  return threads;
}

int threads_per_rank(int ranks_on_host) {
  if (const std::optional<int> wanted = wanted_threads()) return *wanted;
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
