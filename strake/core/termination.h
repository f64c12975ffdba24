#pragma once

#include <csignal>

namespace strake {

// Several signals within this time are one: who stops a job may signal its processes, and so do the launchers that it
// signals, too.
inline constexpr int kTerminationWishSeconds = 2;

// While it exists, SIGTERM, with which schedulers announce that they take a machine back, is noted instead of ending
// the process. One that comes later than kTerminationWishSeconds after the first ends it. At most one object at a time.
class TerminationWatch {
 public:
  // A process that ignores SIGTERM goes on ignoring it.
  TerminationWatch();
  ~TerminationWatch();
  TerminationWatch(const TerminationWatch&) = delete;
  TerminationWatch& operator=(const TerminationWatch&) = delete;

  // From any thread.
  bool is_requested() const;

 private:
  struct sigaction before_{};
};

}  // namespace strake
