#include "strake/models/gpus.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <unistd.h>

#include "strake/core/error.h"
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
  constexpr int kLeastCapability = 80;  // of the kernels: products of bf16 on tensor cores
  const int capability = tensors::gpu_capability(number);
  require(capability == 0 || capability >= kLeastCapability, ErrorKind::kConfig,
          "--device cuda: GPU {} ({}) has compute capability {}.{}, and 8.0 or later is needed", number,
          tensors::gpu_name(number), capability / 10, capability % 10);
  const kernels::cuda::CudaTable& table = kernels::cuda::library();
  kernels::cuda::check(table, table.set_device(number), "choosing a GPU");
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(number));
  const c10::impl::DeviceGuardImplInterface* const libtorch = c10::impl::getDeviceGuardImpl(at::kCUDA);
  libtorch->setDevice(device);
  libtorch->exchangeStream(libtorch->getDefaultStream(device));
}

}  // namespace strake::models
