#pragma once

#include <c10/core/Device.h>

#include "strake/training/options.h"

// Training on GPUs, one rank each. The loop is that of the processor: tensors are somewhere else, kernels follow them
// (models/place.h), matrix products are ATen's.
namespace strake::training {

// Where a rank with these options keeps its tensors.
at::Device device_of(const TrainingOptions& options);

// GPUs of this machine, at least 1: opens libtorch's CUDA half and strake's kernels, once for the process. Error
// (kConfig) that says what is missing.
int open_gpus();

// Makes one of them the calling thread's current device. After open_gpus().
void use_gpu(int number);

// Error (kConfig) that names what GPUs cannot do yet: Lamb, and parameters on disk under hybrid sharding.
void require_gpus_can(const TrainingOptions& options);

}  // namespace strake::training
