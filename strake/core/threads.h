#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

namespace strake {

// The numbers of the cores that this process may use, by its affinity mask (`taskset`, batch systems, launchers that
// bind ranks), which OpenMP's places are a part of where OMP_PROC_BIND has bound the calling thread to one of them.
std::vector<int> cores_of_process();

// How many that is, or as many as the process's control groups give it the time of (`docker run --cpus`, limits of
// Kubernetes), of parts of a core none: threads beyond that would be stopped in the middle of what others wait for. At
// least 1. `root` and `membership` are for tests.
int available_cores(const std::filesystem::path& root = "/sys/fs/cgroup",
                    const std::filesystem::path& membership = "/proc/self/cgroup");

// Whole cores, at least 1, for process `own` of those on a host, which may use the cores `of_processes`: each core is
// divided among those that may use it.
int share_of_cores(const std::vector<std::vector<int>>& of_processes, size_t own);

// STRAKE_NUM_THREADS, if it is set. OMP_NUM_THREADS is not read: launchers set it to 1 behind the user's back.
std::optional<int> wanted_threads();

// Compute threads for one rank when `ranks_on_host` ranks share what this process may use: wanted_threads(), or the
// cores divided evenly, at least 1.
int threads_per_rank(int ranks_on_host);

// Number of threads that parallel_for uses when called from this thread.
inline int num_threads() { return omp_get_max_threads(); }
// Applies to the calling thread only, so that every rank thread has its own count. OMP_DYNAMIC, with which OpenMP gives
// fewer threads where the machine is busy, does not hold.
inline void set_num_threads(int threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
}

// Calls work(id, size) once for every id in [0, size), each on a thread of its own and all at the same time, and
// returns when all have returned. `size` is `threads`, or less if the system gives fewer. Exceptions must not leave
// `work`.
void run_team(int threads, const std::function<void(int id, int size)>& work);

// Calls run(id) once for every id in [0, count), at the same time, on threads among which the calling thread's number
// of threads is divided. Returns when all have returned, and throws what the first of them threw.
void run_side_by_side(int count, const std::function<void(int id)>& run);

// Calls body(begin, end) on disjoint ranges covering [0, count), each a multiple of `grain` long but for the last.
// Ranges depend on the thread count: a body whose result depends on the cut must do its own fixed cutting.
// Exceptions must not leave `body`.
template <typename Body>
void parallel_for(int64_t count, int64_t grain, const Body& body) {
  const int64_t grains = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<int64_t>(num_threads(), grains));
  if (threads <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  const auto work = [&](int id, int size) {
    const int64_t begin = std::min(count, grains * id / size * grain);
    const int64_t end = std::min(count, grains * (id + 1) / size * grain);
    if (begin < end) body(begin, end);
  };
  run_team(threads, std::cref(work));  // by reference: a copy would be allocated
}

}  // namespace strake
