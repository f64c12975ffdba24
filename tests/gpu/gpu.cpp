#include "tests/gpu/gpu.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "strake/kernels/cuda/library.h"
#include "strake/kernels/cuda/table_under_test.h"
#include "strake/models/gpus.h"
#include "strake/training/device.h"

namespace strake {

bool has_gpu() { return std::getenv("STRAKE_REQUIRE_GPU") != nullptr || std::filesystem::exists("/dev/nvidiactl"); }

int open_gpu() {
  const int count = models::open_gpus();
  models::use_gpu(0);
  return count;
}

int num_ranks_on_gpus() { return std::max(open_gpu(), training::ranks_may_share_gpus() ? 2 : 1); }

namespace kernels::cuda {

const CudaTable* table_under_test() {
  if (!has_gpu()) return nullptr;
  open_gpu();
  return &library();
}

}  // namespace kernels::cuda
}  // namespace strake
