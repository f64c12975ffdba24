#include "strake/training/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <string_view>

#include "strake/kernels/cuda/call.h"
#include "strake/kernels/cuda/library.h"
#include "strake/tensors/cuda_libtorch.h"

namespace strake::training {

at::Device device_of(const TrainingOptions& options) {
  return options.gpu ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(*options.gpu)) : at::Device(at::kCPU);
}

int open_gpus() {
  static const int count = [] {
    const int found = tensors::open_cuda_libtorch();
    kernels::cuda::library();
    // As on CPUs, sums of products in 16 bits are fp32 until their end.
    at::globalContext().setAllowBF16ReductionCuBLAS(false);
    at::globalContext().setAllowFP16ReductionCuBLAS(false);
    return found;
  }();
  return count;
}

int gpu_of_rank(int rank_of_machine) { return rank_of_machine % open_gpus(); }

bool ranks_may_share_gpus() {
  const char* const setting = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return setting != nullptr && std::string_view(setting) == "1";
}

void use_gpu(int number) {
  const kernels::cuda::CudaTable& table = kernels::cuda::library();
  kernels::cuda::check(table, table.set_device(number), "choosing a GPU");
  c10::impl::getDeviceGuardImpl(at::kCUDA)->setDevice(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(number)));
}

}  // namespace strake::training
