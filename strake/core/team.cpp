#include "strake/core/threads.h"

namespace strake {

void run_team(int threads, const std::function<void(int id, int size)>& work) {
#pragma omp parallel num_threads(threads)
  work(omp_get_thread_num(), omp_get_num_threads());
}

}  // namespace strake
