#include "strake/comm/rank_watch.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <thread>

#include "strake/core/test_error.h"

namespace strake::comm::rank_watch_test {
namespace {

using namespace std::chrono_literals;

constexpr const char* kGone =
    "strake: communication error: rank 1 is gone: the others cannot go on without it \\(it fell\\)";

// A watch of rank 0 and the server's end of its connection.
class Pair {
 public:
  explicit Pair(RankWatch::Server server = RankWatch::Server::kRankZero) {
    std::array<int, 2> ends{};
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0, ErrorKind::kInternal, "no socket pair");
    server_ = ends[0];
    watch_.emplace(ends[1], RankWatch::Place{.rank = 2, .num_ranks = 3}, server);
    EXPECT_TRUE(hear().starts_with("cmd=watch rank=2 "));
  }
  ~Pair() {
    watch_.reset();
    close_server();
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  RankWatch& watch() { return *watch_; }
  void say(const std::string& line) { send_line(server_, line); }
  void tell() { say(stop_line(gone_news(1, "it fell"))); }
  std::string hear() {
    auto line = lines_.take();
    while (!line && lines_.receive(server_)) line = lines_.take();
    return line.value_or("");
  }
  void close_server() {
    if (server_ >= 0) ::close(server_);
    server_ = -1;
  }

 private:
  int server_ = -1;
  LineReader lines_;
  std::optional<RankWatch> watch_;
};

std::string error_of(RankWatch& watch) {
  return strake::error_of([&] { watch.require_all(); }).text;
}

TEST(RankWatch, TheFirstNewsCount) {
  Pair pair;
  pair.tell();
  pair.say(stop_line(gone_news(0, "later")));
  pair.watch().wait_for_news();
  EXPECT_EQ(error_of(pair.watch()), "rank 1 is gone: the others cannot go on without it (it fell)");
}

TEST(RankWatch, RanksWaitForAll) {
  Pair pair;
  std::thread server([&] {
    std::this_thread::sleep_for(50ms);
    pair.say("cmd=go");
  });
  pair.watch().wait_for_all(10s);
  server.join();
  EXPECT_EQ(error_of(pair.watch()), "no error");
}

TEST(RankWatch, AServerThatSaysNothingIsNone) {
  Pair pair;
  EXPECT_THROW(pair.watch().wait_for_all(1s), Error);
}

TEST(RankWatch, RankZeroIsGoneWithItsServer) {
  Pair pair;
  pair.close_server();
  pair.watch().wait_for_news();
  EXPECT_TRUE(error_of(pair.watch()).starts_with("rank 0 is gone: "));
}

TEST(RankWatch, AGuardOrAServerThatHasSaidGoodbyeMayGo) {
  Pair guarded(RankWatch::Server::kGuard);
  guarded.close_server();
  Pair served;
  served.say("cmd=bye");
  served.close_server();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(error_of(guarded.watch()), "no error");
  EXPECT_EQ(error_of(served.watch()), "no error");
}

TEST(RankWatch, ARankThatGivesUpSaysWhyAndWaitsUntilTheOthersKnow) {
  Pair pair;
  std::thread server([&] {
    EXPECT_EQ(pair.hear(), "cmd=fail kind=2 text=no such column");
    pair.say("cmd=stop rank=2 kind=2 text=rank 2 stopped: no such column");
  });
  pair.watch().give_up(ErrorKind::kData, "no such column");
  EXPECT_EQ(error_of(pair.watch()), "rank 2 stopped: no such column");
  server.join();
}

TEST(RankWatch, ARankThatFailsAfterAnotherHasGoneNamesThatOne) {
  Pair pair;
  std::thread server([&] {
    EXPECT_EQ(pair.hear(), "cmd=fail kind=3 text=no such file");
    pair.tell();
  });
  const Caught own = strake::error_of([&] { pair.watch().give_up(ErrorKind::kIo, "no such file"); });
  EXPECT_EQ(own.text_of(ErrorKind::kComm), "rank 1 is gone: the others cannot go on without it (it fell)");
  server.join();
}

// Processes that would not ask:

TEST(RankWatchDeathTest, AProcessThatComputesIsEnded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Pair pair;
        pair.tell();
        std::this_thread::sleep_for(20s);
      },
      testing::ExitedWithCode(5), kGone);
}

// The news come while the process is ending.
template <typename End>
void end_before_the_news(const End& end) {
  Pair pair;
  std::thread server([&] {
    std::this_thread::sleep_for(200ms);
    pair.tell();
    std::this_thread::sleep_for(20s);
  });
  end();
}

TEST(RankWatchDeathTest, AProcessThatMpiAbortsWaitsForTheNews) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT({ end_before_the_news([] { std::abort(); }); }, testing::ExitedWithCode(5), kGone);
}

TEST(RankWatchDeathTest, AProcessThatMpiExitsWaitsForTheNews) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT({ end_before_the_news([] { std::exit(6); }); }, testing::ExitedWithCode(5), kGone);
}

TEST(RankWatchDeathTest, AStartOfMpiThatCrashesWaitsForTheNews) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto crash = [] { RankWatch::start_mpi([] { ::raise(SIGSEGV); }); };
  EXPECT_EXIT({ end_before_the_news(crash); }, testing::ExitedWithCode(5), kGone);
}

TEST(RankWatchDeathTest, ACrashOfOurOwnStaysOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto crashed = [](int status) {
    const bool is_sanitized = std::getenv("STRAKE_SANITIZE") != nullptr;  // AddressSanitizer reports it, and exits
    return is_sanitized ? testing::ExitedWithCode(1)(status) : testing::KilledBySignal(SIGSEGV)(status);
  };
  EXPECT_EXIT(
      {
        Pair pair;
        RankWatch::start_mpi([] {
          ::raise(SIGSEGV);  // an instruction would do it again
          ::raise(SIGSEGV);
        });
      },
      crashed, "");
}

TEST(RankWatchDeathTest, AnAbortOfOurOwnStaysOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Pair pair;
        std::abort();
      },
      testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace strake::comm::rank_watch_test
