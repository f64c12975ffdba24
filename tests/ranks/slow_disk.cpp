// Loaded before libc by tests of checkpoints that are written while training goes on: an optimizer's file takes
// STRAKE_TEST_FSYNC_SECONDS to reach the disk.
#include <sys/syscall.h>
#include <unistd.h>

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
