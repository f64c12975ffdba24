#pragma once

#include "strake/core/error.h"
#include "strake/kernels/cuda/table.h"

namespace strake::kernels::cuda {

// Error with CUDA's words unless `error` is 0: kUsage for memory that the GPU does not have, else kInternal.
inline void check(const CudaTable& table, int error, const char* what) {
  constexpr int kMemoryAllocation = 2;  // cudaErrorMemoryAllocation
  if (error == 0) return;
  const bool is_memory = error == kMemoryAllocation;
  fail(is_memory ? ErrorKind::kUsage : ErrorKind::kInternal, "CUDA: {} failed: {}{}", what, table.error_text(error),
       is_memory ? "; smaller batches need less" : "");
}

}  // namespace strake::kernels::cuda
