#include "strake/training/device.h"

#include <cstdlib>
#include <string_view>

#include "strake/models/gpus.h"

namespace strake::training {

at::Device device_of(const TrainingOptions& options) {
  return options.gpu ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(*options.gpu)) : at::Device(at::kCPU);
}

int gpu_of_rank(int rank_of_machine) { return rank_of_machine % models::open_gpus(); }

bool ranks_may_share_gpus() {
  const char* const setting = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return setting != nullptr && std::string_view(setting) == "1";
}

}  // namespace strake::training
