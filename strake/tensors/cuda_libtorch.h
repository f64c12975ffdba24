#pragma once

#include <cstdint>
#include <string>

namespace strake::tensors {

// Opens the part of libtorch that is for CUDA, which nothing links, once for the process; from then on tensors can be
// on GPUs. Returns their number, at least 1. Error (kConfig) that says what is missing: the library, one that it needs,
// or a GPU.
int open_cuda_libtorch();

// The most bytes that tensors of this process had on one of its GPUs at a time. After open_cuda_libtorch().
int64_t peak_gpu_bytes();

// What its driver calls a GPU: "NVIDIA H100 80GB HBM3". After open_cuda_libtorch(). "GPU" if the driver does not say.
std::string gpu_name(int gpu);
// Compute capability, 8.0 as 80; 0 if the driver does not say.
int gpu_capability(int gpu);

// Of a GPU, in bytes.
struct GpuMemory {
  int64_t free = 0;
  int64_t total = 0;
};
GpuMemory gpu_memory(int gpu);

}  // namespace strake::tensors
