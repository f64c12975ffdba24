#pragma once

#include <ATen/core/Tensor.h>

#include "strake/kernels/cuda/library.h"
#include "strake/kernels/cuda/on_cuda.h"

namespace strake::models {

// Where kernels for a tensor run: on its GPU, on the default stream, or on this processor. The one place that decides.
inline kernels::Place place_of(const at::Tensor& tensor) {
  if (tensor.is_cuda()) return kernels::OnCuda{.table = &kernels::cuda::library()};
  return best_isa();
}

}  // namespace strake::models
