// Loaded before libc by tests of checkpoints that are written while training goes on: an optimizer's file takes
// STRAKE_TEST_FSYNC_SECONDS to reach the disk, and tensors of a batch get no memory once STRAKE_TEST_NO_MEMORY is
// there.
#include <malloc.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

extern "C" int fsync(int descriptor) {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), error);
  const char* const seconds = std::getenv("STRAKE_TEST_FSYNC_SECONDS");
  if (seconds != nullptr && path.filename().string().starts_with("optimizer-")) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::strtod(seconds, nullptr)));
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

extern "C" int posix_memalign(void** memory, size_t alignment, size_t size) {
  constexpr size_t kSmall = 4096;
  const char* const sign = std::getenv("STRAKE_TEST_NO_MEMORY");
  if (size > kSmall && sign != nullptr && ::access(sign, F_OK) == 0) return ENOMEM;
  *memory = ::memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
