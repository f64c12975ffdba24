#include "strake/core/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "strake/core/error.h"

namespace strake::threads_test {
namespace {

TEST(Threads, ParallelForCoversEveryIndexOnce) {
  for (const int64_t count : {0, 1, 5, 64, 1000, 1001}) {
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      std::vector<int> hits(count, 0);
      parallel_for(count, 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++hits[i];
      });
      EXPECT_EQ(hits, std::vector<int>(count, 1)) << count << " with " << threads;
    }
  }
}

TEST(Threads, TeamsAndTheirCallerSeeWhatWasWrittenBefore) {
  set_num_threads(3);
  constexpr int64_t kCount = 300;
  std::vector<int64_t> values(kCount, 0);
  for (int64_t round = 0; round < 50; ++round) {
    const auto add = [&](bool backwards) {
      parallel_for(kCount, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++values[backwards ? kCount - 1 - i : i];
      });
    };
    add(false);
    add(true);
    for (int64_t& value : values) ++value;
  }
  EXPECT_EQ(values, std::vector<int64_t>(kCount, 150));
}

TEST(Threads, CountBelongsToTheCallingThread) {
  set_num_threads(2);
  std::thread([] { set_num_threads(1); }).join();
  EXPECT_EQ(num_threads(), 2);
}

TEST(Threads, OpenMpDoesNotGiveFewerWhereTheMachineIsBusy) {
  const int before = num_threads();
  omp_set_dynamic(1);  // as OMP_DYNAMIC=true does
  set_num_threads(before);
  EXPECT_EQ(omp_get_dynamic(), 0);
}

TEST(Threads, SideBySideShareTheCallersNumber) {
  set_num_threads(5);
  std::vector<int> given(3);
  run_side_by_side(3, [&](int id) { given[static_cast<size_t>(id)] = num_threads(); });
  EXPECT_EQ(given[0] + given[1] + given[2], 5);
  run_side_by_side(6, [&](int) { EXPECT_EQ(num_threads(), 1); });
  EXPECT_EQ(num_threads(), 5);
  run_side_by_side(0, [](int) { FAIL(); });
  set_num_threads(2);
}

TEST(Threads, SideBySideThrowWhenAllHaveReturned) {
  std::atomic<int> returned{0};
  const auto run = [&](int id) {
    ++returned;
    require(id != 1, ErrorKind::kData, "thread {}", id);
  };
  EXPECT_THROW(run_side_by_side(3, run), Error);
  EXPECT_EQ(returned, 3);
}

TEST(Threads, CoresAreSharedEvenlyAndFollowTheAffinityMask) {
  ::unsetenv("STRAKE_NUM_THREADS");
  EXPECT_EQ(threads_per_rank(1), available_cores());
  EXPECT_EQ(threads_per_rank(1000), 1);
  ::setenv("STRAKE_NUM_THREADS", "3", 1);
  EXPECT_EQ(threads_per_rank(2), 3);
  ::setenv("STRAKE_NUM_THREADS", "many", 1);
  EXPECT_THROW(threads_per_rank(1), Error);
  ::unsetenv("STRAKE_NUM_THREADS");
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    cpu_set_t all;
    sched_getaffinity(0, sizeof(all), &all);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &all)) {
        CPU_SET(cpu, &one);
        break;
      }
    }
    sched_setaffinity(0, sizeof(one), &one);
    EXPECT_EQ(available_cores(), 1);
  }).join();
}

TEST(Threads, CoresAreDividedAmongTheProcessesThatMayUseThem) {
  const std::vector<int> lower{0, 1, 2, 3};
  const std::vector<int> upper{4, 5, 6, 7};
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(share_of_cores({all}, 0), 8);
  EXPECT_EQ(share_of_cores({all, all}, 1), 4);
  EXPECT_EQ(share_of_cores({lower, upper}, 1), 4);                // each bound to its own
  EXPECT_EQ(share_of_cores({lower, upper, lower, upper}, 2), 2);  // two to a socket
  EXPECT_EQ(share_of_cores({lower, all}, 1), 6);
  EXPECT_EQ(share_of_cores({all, all, all}, 0), 2);
  EXPECT_EQ(share_of_cores({{3}, {3}, {3}}, 0), 1);
  EXPECT_EQ(share_of_cores({{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}, 1), 1);  // 1/3 + 1/3 + 1/3
}

}  // namespace
}  // namespace strake::threads_test
