#include "strake/tensors/compute_threads.h"

#include <ATen/Parallel.h>

#include "strake/core/threads.h"

namespace strake::tensors {

void set_compute_threads(int threads) {
  // ATen resets a thread's OpenMP count on its first parallel region, from a process-wide value; asking for the count
  // makes that happen now. Only then is the count of this thread really its own.
  at::get_num_threads();
  at::set_num_threads(threads);
  strake::set_num_threads(threads);
}

}  // namespace strake::tensors
