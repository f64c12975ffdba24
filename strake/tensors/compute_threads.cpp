#include "strake/tensors/compute_threads.h"

#include <ATen/Parallel.h>

#include <latch>
#include <thread>
#include <vector>

#include "strake/core/threads.h"

namespace strake::tensors {
namespace {

// libtorch waits for ever for threads of its pool that the system does not give, and OpenMP ends the process: each of
// them starts as many as compute, beside the one that asks.
void require_threads(int computing) {
  std::latch is_over(1);
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < 2 * (computing - 1); ++i) threads.emplace_back([&] { is_over.wait(); });
  } catch (...) {
    is_over.count_down();
    throw;
  }
  is_over.count_down();
}

}  // namespace

void set_compute_threads(int threads) {
  require_threads(threads);
  // ATen resets a thread's OpenMP count on its first parallel region, from a process-wide value; asking for the count
  // makes that happen now. Only then is the count of this thread really its own.
  at::get_num_threads();
  at::set_num_threads(threads);
  strake::set_num_threads(threads);
}

}  // namespace strake::tensors
