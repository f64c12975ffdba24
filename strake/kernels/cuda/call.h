#pragma once

#include "strake/core/error.h"
#include "strake/kernels/cuda/table.h"

namespace strake::kernels::cuda {

// Error (kInternal) with CUDA's words unless `error` is 0.
inline void check(const CudaTable& table, int error, const char* what) {
  require(error == 0, ErrorKind::kInternal, "CUDA: {} failed: {}", what, table.error_text(error));
}

}  // namespace strake::kernels::cuda
