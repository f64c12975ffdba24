#include "strake/core/termination.h"

#include <atomic>
#include <cstdint>
#include <ctime>

namespace strake {
namespace {

std::atomic<bool> is_noted{false};
std::atomic<int64_t> noted_at{0};  // nanoseconds; 0: not yet
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "a signal handler may not wait");

constexpr int64_t kNanoseconds = 1'000'000'000;
constexpr int64_t kOneWish = kTerminationWishSeconds * kNanoseconds;

// Only calls that a signal handler may make.
int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kNanoseconds + time.tv_nsec;
}

void note(int signal) {
  int64_t first = 0;
  const int64_t moment = now();
  const bool is_first = noted_at.compare_exchange_strong(first, moment);
  is_noted = true;
  if (is_first || moment - first < kOneWish) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // which waits for the end of this handler
}

}  // namespace

TerminationWatch::TerminationWatch() {
  is_noted = false;
  noted_at = 0;
  ::sigaction(SIGTERM, nullptr, &before_);
  if (before_.sa_handler == SIG_IGN) return;
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
}

TerminationWatch::~TerminationWatch() { ::sigaction(SIGTERM, &before_, nullptr); }

bool TerminationWatch::is_requested() const { return is_noted; }

}  // namespace strake
