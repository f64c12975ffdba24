#include "strake/core/termination.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace strake::termination_test {
namespace {

TEST(TerminationWatch, NotesTheSignalAndLeavesEverythingAsItWas) {
  {
    const TerminationWatch watch;
    EXPECT_FALSE(watch.is_requested());
    std::raise(SIGTERM);
    EXPECT_TRUE(watch.is_requested());
  }
  struct sigaction action{};
  ::sigaction(SIGTERM, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
  const TerminationWatch next;
  EXPECT_FALSE(next.is_requested());
}

TEST(TerminationWatch, SignalsInQuickSuccessionAreOne) {
  const TerminationWatch watch;
  for (int i = 0; i < 3; ++i) std::raise(SIGTERM);
  EXPECT_TRUE(watch.is_requested());
}

TEST(TerminationWatchDeathTest, ALaterSignalEndsTheProcess) {
  const auto ask_twice = [] {
    const TerminationWatch watch;
    std::raise(SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(kTerminationWishSeconds));
    std::raise(SIGTERM);
  };
  EXPECT_EXIT(ask_twice(), testing::KilledBySignal(SIGTERM), "");
}

TEST(TerminationWatch, LeavesASignalIgnoredThatWasIgnored) {
  std::signal(SIGTERM, SIG_IGN);
  {
    const TerminationWatch watch;
    std::raise(SIGTERM);
    EXPECT_FALSE(watch.is_requested());
  }
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace
}  // namespace strake::termination_test
