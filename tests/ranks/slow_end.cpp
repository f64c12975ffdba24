// Loaded before libc: a process that ends itself has closed its connection to MPICH's launcher before the launcher can
// see how it ended, as happens on a busy machine.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace {

[[noreturn]] void end_slowly(int code) {
  if (const char* const socket = std::getenv("PMI_FD")) {
    constexpr useconds_t kMicroseconds = 50'000;
    ::close(std::atoi(socket));
    ::usleep(kMicroseconds);
  }
  ::syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

}  // namespace

// NOLINTBEGIN: libc's names
extern "C" void _exit(int code) { end_slowly(code); }
extern "C" void _Exit(int code) { end_slowly(code); }
// NOLINTEND
