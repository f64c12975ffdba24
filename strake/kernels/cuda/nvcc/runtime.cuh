#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace strake::kernels::cuda {

struct Grid {
  int64_t x;      // below 2^31
  int64_t y = 1;  // below 2^16
};

// Nothing for an empty grid, which CUDA takes for an error.
template <typename... Parameters>
int launch(void (*kernel)(Parameters...), const Grid& grid, int threads, void* stream,
           std::type_identity_t<Parameters>... arguments) {
  if (grid.x == 0 || grid.y == 0) return 0;
  void* pointers[] = {&arguments...};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                          dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y)),
                          dim3(static_cast<unsigned>(threads)), pointers, 0, static_cast<cudaStream_t>(stream));
}

}  // namespace strake::kernels::cuda
