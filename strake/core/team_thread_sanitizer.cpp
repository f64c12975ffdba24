// In place of team.cpp in a build with ThreadSanitizer, which does not see the barriers inside libgomp: tells it that a
// team starts after what its caller did before, and that the caller goes on after what the team did. Races between the
// threads of a team, and between teams of different callers, stay visible.
#include <sanitizer/tsan_interface.h>

#include "strake/core/threads.h"

namespace strake {

// Not instrumented itself: a thread of the team reads the addresses below before it can say that they were handed over.
__attribute__((no_sanitize("thread"))) void run_team(int threads, const std::function<void(int id, int size)>& work) {
  char start = 0;
  char finish = 0;
  __tsan_release(&start);
#pragma omp parallel num_threads(threads)
  {
    __tsan_acquire(&start);
    work(omp_get_thread_num(), omp_get_num_threads());
    __tsan_release(&finish);
  }
  __tsan_acquire(&finish);
}

}  // namespace strake
