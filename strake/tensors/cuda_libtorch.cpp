#include "strake/tensors/cuda_libtorch.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "strake/core/error.h"

namespace strake::tensors {
namespace {

// WSL has but the second.
bool has_driver() {
  std::error_code unknown;
  return std::filesystem::exists("/dev/nvidiactl", unknown) || std::filesystem::exists("/dev/dxg", unknown);
}

// Its static initialisers register CUDA's operators with libtorch_cpu.so.
c10::DeviceIndex open_once() {
  void* const handle = ::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr && !has_driver()) {
    fail(ErrorKind::kConfig, "no GPU: this machine has no driver of one (/dev/nvidiactl is not there)");
  }
  require(
      handle != nullptr, ErrorKind::kConfig,
      "no tensors on GPUs: {}. Install libtorch's CUDA libraries: pip install torch==2.11.0 with all that it depends "
      "on",
      ::dlerror());
  require(c10::impl::hasDeviceGuardImpl(c10::kCUDA), ErrorKind::kConfig,
          "no tensors on GPUs: libtorch_cuda.so does not belong to this libtorch");
  const c10::DeviceIndex count = c10::impl::getDeviceGuardImpl(c10::kCUDA)->deviceCount();
  require(count > 0, ErrorKind::kConfig,
          "no GPU: CUDA finds none on this machine (nvidia-smi shows what the driver has)");
  // It remembers that it had no half for CUDA, so that the first tensor on a GPU would fail.
  require(at::hasCUDA(), ErrorKind::kInternal, "GPUs were opened after libtorch had been asked for one");
  return count;
}

// ask(the driver's function of this name, device); false if there is none.
template <typename Function, typename Ask>
bool ask_driver(int gpu, const char* name, const Ask& ask) {
  using GetDevice = int(int* device, int ordinal);
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return false;
  auto* const get_device = reinterpret_cast<GetDevice*>(::dlsym(driver, "cuDeviceGet"));
  auto* const function = reinterpret_cast<Function*>(::dlsym(driver, name));
  int device = 0;
  const bool known =
      get_device != nullptr && function != nullptr && get_device(&device, gpu) == 0 && ask(function, device);
  ::dlclose(driver);  // libtorch keeps it
  return known;
}

}  // namespace

int open_cuda_libtorch() {
  static const c10::DeviceIndex count = open_once();
  return count;
}

int64_t peak_gpu_bytes() {
  c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(c10::kCUDA);
  int64_t most = 0;
  for (int gpu = 0; gpu < open_cuda_libtorch(); ++gpu) {
    const auto stats = allocator.getDeviceStats(static_cast<c10::DeviceIndex>(gpu));
    most = std::max(most, stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak);
  }
  return most;
}

// libtorch has these for Python only.
std::string gpu_name(int gpu) {
  constexpr int kLongest = 256;
  using GetName = int(char* name, int length, int device);
  std::array<char, kLongest> name{};
  const bool known = ask_driver<GetName>(gpu, "cuDeviceGetName", [&](GetName* get_name, int device) {
    return get_name(name.data(), kLongest, device) == 0;
  });
  return known ? name.data() : "GPU";
}

int gpu_capability(int gpu) {
  constexpr int kMajor = 75;
  constexpr int kMinor = 76;
  using GetAttribute = int(int* value, int attribute, int device);
  int major = 0;
  int minor = 0;
  const bool known = ask_driver<GetAttribute>(gpu, "cuDeviceGetAttribute", [&](GetAttribute* get, int device) {
    return get(&major, kMajor, device) == 0 && get(&minor, kMinor, device) == 0;
  });
  return known ? 10 * major + minor : 0;
}

GpuMemory gpu_memory(int gpu) {
  open_cuda_libtorch();
  const auto [free, total] = c10::getDeviceAllocator(c10::kCUDA)->getMemoryInfo(static_cast<c10::DeviceIndex>(gpu));
  return {.free = static_cast<int64_t>(free), .total = static_cast<int64_t>(total)};
}

}  // namespace strake::tensors
