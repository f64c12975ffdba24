#pragma once

#include <filesystem>

#include "strake/kernels/cuda/table.h"

namespace strake::kernels::cuda {

// Opens libstrake_cuda.so: the file that STRAKE_CUDA_LIBRARY names, else the one beside the program. Error (kConfig)
// that says what is missing if it cannot be opened or was built from another version of strake.
const CudaTable& open_library(const std::filesystem::path& path);

// The same for the process's one library, opened by the first call. It is never closed.
const CudaTable& library();

}  // namespace strake::kernels::cuda
