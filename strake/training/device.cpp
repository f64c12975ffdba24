#include "strake/training/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "strake/core/error.h"
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

void use_gpu(int number) {
  const kernels::cuda::CudaTable& table = kernels::cuda::library();
  kernels::cuda::check(table, table.set_device(number), "choosing a GPU");
  c10::impl::getDeviceGuardImpl(at::kCUDA)->setDevice(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(number)));
}

void require_gpus_can(const TrainingOptions& options) {
  const optim::OptimizerSettings settings = options.optimizer_settings();
  require(settings.rule != optim::OptimizerRule::kLamb, ErrorKind::kConfig,
          "--device cuda: the optimizer Lamb has no kernel for GPUs yet; AdamW, Adam, Adagrad, Lion and SGD have");
  const OffloadOptions& offload = options.sharding.offload;
  const bool is_hybrid = options.sharding.stage.parameters == Kept::kGroupShard;
  require(!offload.parameters || !is_hybrid, ErrorKind::kConfig,
          "--device cuda: parameters on nvme are not there yet for groups of ranks (hybrid sharding); offload_param to "
          "cpu is");
  require(!offload.parameters_to_host || offload.optimizer_to_host || offload.optimizer, ErrorKind::kConfig,
          "--device cuda: offload_param to cpu needs offload_optimizer to cpu or nvme: the update writes both");
}

}  // namespace strake::training
