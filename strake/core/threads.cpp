#include "strake/core/threads.h"

#include <sched.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "strake/core/error.h"

namespace strake {

int available_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 1;
  return std::max(1, CPU_COUNT(&mask));
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
