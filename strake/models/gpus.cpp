#include "strake/models/gpus.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <unistd.h>

#include "strake/kernels/cuda/call.h"
#include "strake/kernels/cuda/library.h"
#include "strake/tensors/cuda_libtorch.h"

namespace strake::models {

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

bool may_have_gpus() { return ::access("/dev/nvidiactl", R_OK | W_OK) == 0; }

void use_gpu(int number) {
  const kernels::cuda::CudaTable& table = kernels::cuda::library();
  kernels::cuda::check(table, table.set_device(number), "choosing a GPU");
  c10::impl::getDeviceGuardImpl(at::kCUDA)->setDevice(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(number)));
}

}  // namespace strake::models
