#pragma once

#include <c10/core/Device.h>

#include "strake/training/options.h"

// Training on GPUs, one rank each. The loop is that of the processor: tensors are somewhere else, kernels follow them
// (models/place.h), matrix products are ATen's.
namespace strake::training {

// Where a rank with these options keeps its tensors.
at::Device device_of(const TrainingOptions& options);

// The GPU of the n-th rank of this machine: the n-th, from the first again where there are fewer.
int gpu_of_rank(int rank_of_machine);

// Ranks of NCCL refuse to have one GPU in common, but newer ones where NCCL_MULTI_RANK_GPU_ENABLE is 1.
bool ranks_may_share_gpus();

}  // namespace strake::training
