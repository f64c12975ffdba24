#include "strake/core/threads.h"

#include <sched.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

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

}  // namespace strake
