#include "strake/core/termination.h"

#include <atomic>

namespace strake {
namespace {

std::atomic<bool> is_noted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

void note(int /*signal*/) { is_noted = true; }

}  // namespace

TerminationWatch::TerminationWatch() {
  is_noted = false;
  ::sigaction(SIGTERM, nullptr, &before_);
  if (before_.sa_handler == SIG_IGN) return;
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGTERM, &action, nullptr);
}

TerminationWatch::~TerminationWatch() { ::sigaction(SIGTERM, &before_, nullptr); }

bool TerminationWatch::is_requested() const { return is_noted; }

}  // namespace strake
