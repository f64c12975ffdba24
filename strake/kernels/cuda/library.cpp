#include "strake/kernels/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "strake/core/error.h"

namespace strake::kernels::cuda {
namespace {

std::filesystem::path library_path() {
  const char* named = std::getenv("STRAKE_CUDA_LIBRARY");
  if (named != nullptr && *named != '\0') return named;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libstrake_cuda.so";
}

}  // namespace

const CudaTable& open_library(const std::filesystem::path& path) {
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  require(handle != nullptr, ErrorKind::kConfig,
          "no kernels for GPUs: {}. The library is built where CMake finds nvcc (of the CUDA version of libtorch, "
          "torch.version.cuda) and is looked for "
          "beside the program or where STRAKE_CUDA_LIBRARY says; it needs libcudart.so of the same CUDA version",
          ::dlerror());
  using Entry = const CudaTable* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(handle, kTableSymbol));
  require(entry != nullptr, ErrorKind::kConfig, "{} is no library of strake's GPU kernels: it lacks {}", path.string(),
          kTableSymbol);
  const CudaTable* const table = entry();
  require(table->version == kTableVersion && table->bytes == sizeof(CudaTable), ErrorKind::kConfig,
          "{} is of another version of strake (table {} of {} bytes, not {} of {}): build it again", path.string(),
          table->version, table->bytes, kTableVersion, sizeof(CudaTable));
  return *table;
}

const CudaTable& library() {
  static const CudaTable& opened = open_library(library_path());
  return opened;
}

}  // namespace strake::kernels::cuda
