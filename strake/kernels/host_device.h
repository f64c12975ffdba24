#pragma once

// Marks the few functions that both processors and CUDA kernels call: one definition, the same bits.
#ifdef __CUDACC__
#define STRAKE_HOST_DEVICE __host__ __device__
#else
#define STRAKE_HOST_DEVICE
#endif
