#include "strake/comm/rank_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "strake/comm/rank_watch.h"
#include "strake/core/error.h"

namespace strake::comm::rank_wait_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

Fields watch_of(int rank) { return parse_line(watch_line(rank, 3)); }

std::string error_of_waiting(RankWatch* watch) {
  try {
    RankWait wait(watch, "all_gather", 1s);
    while (true) wait.check();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kComm);
    return error.what();
  }
}

TEST(RankWait, EndsWithoutAServerToo) {
  EXPECT_EQ(error_of_waiting(nullptr),
            "another rank has not come to all_gather for 1 s (--ddp_timeout), and nobody knows which");
}

TEST(RankWait, APauseOfTheProcessIsNoWait) {
  RankWait wait(nullptr, "all_gather", 2s);
  wait.check();
  std::this_thread::sleep_for(2200ms);  // as long as the process is stopped nobody checks
  wait.check();
  EXPECT_THROW(while (true) wait.check(), Error);
}

TEST(RankWait, TellsTheServerAndHearsWhoIsLate) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  std::vector<std::string> heard;
  std::thread server([&] {
    LineReader lines;
    while (lines.receive(ends[0])) {
      while (const auto line = lines.take()) {
        heard.push_back(*line);
        if (line->starts_with("cmd=late")) send_line(ends[0], stop_line({.rank = 1, .text = "rank 1 is late"}));
      }
    }
  });
  {
    RankWatch watch(ends[1], {.rank = 2, .num_ranks = 3}, RankWatch::Server::kRankZero);
    {
      RankWait(&watch, "short", 100s).check();
    }
    EXPECT_EQ(error_of_waiting(&watch), "rank 1 is late");
  }
  server.join();
  ::close(ends[0]);
  ASSERT_EQ(heard.size(), 4U);
  EXPECT_EQ(heard[1], "cmd=wait");
  EXPECT_EQ(heard[2], "cmd=late seconds=1 text=all_gather");
  EXPECT_EQ(heard[3], "cmd=work");
}

TEST(WaitingRanks, NameThoseThatDoNotWait) {
  const std::vector<Fields> watches{watch_of(0), watch_of(1), watch_of(2), watch_of(3)};
  const Fields late = parse_line("cmd=late seconds=30 text=all_reduce");
  WaitingRanks waiting;
  EXPECT_TRUE(waiting.hear(watches[0], parse_line("cmd=wait")));
  EXPECT_TRUE(waiting.hear(watches[2], parse_line("cmd=wait")));
  EXPECT_FALSE(waiting.hear(watches[2], late));
  RankNews news = waiting.overdue_news(watches[2], late, watches);
  EXPECT_EQ(news.rank, 1);
  EXPECT_THAT(news.text, HasSubstr("rank 1 and rank 3 have not come to all_reduce for 30 s (--ddp_timeout)"));
  EXPECT_THAT(news.text, HasSubstr("(process " + std::to_string(::getpid()) + " on "));

  waiting.hear(watches[1], parse_line("cmd=wait"));
  waiting.hear(watches[3], parse_line("cmd=wait"));
  waiting.hear(watches[0], parse_line("cmd=work"));
  news = waiting.overdue_news(watches[2], late, watches);
  EXPECT_EQ(news.rank, 0);
  EXPECT_THAT(news.text, HasSubstr("rank 0 has not come"));

  waiting.hear(watches[0], parse_line("cmd=wait"));
  news = waiting.overdue_news(watches[2], late, watches);
  EXPECT_EQ(news.rank, 2);
  EXPECT_THAT(news.text, HasSubstr("rank 2 waited 30 s (--ddp_timeout) in all_reduce, and all other ranks"));
}

TEST(WaitingRanks, NameOneThatFrozeInItsWait) {
  const pid_t stopped = ::fork();
  if (stopped == 0) {
    while (true) ::pause();
  }
  ::kill(stopped, SIGSTOP);
  ASSERT_EQ(::waitpid(stopped, nullptr, WUNTRACED), stopped);
  std::vector<Fields> watches{watch_of(0), watch_of(1), watch_of(2)};
  watches[1]["pid"] = std::to_string(stopped);
  WaitingRanks waiting;
  for (const Fields& watch : watches) waiting.hear(watch, parse_line("cmd=wait"));
  const RankNews news = waiting.overdue_news(watches[0], parse_line("cmd=late seconds=30 text=all_reduce"), watches);
  ::kill(stopped, SIGKILL);
  ::waitpid(stopped, nullptr, 0);
  EXPECT_EQ(news.rank, 1);
  EXPECT_THAT(news.text, HasSubstr("rank 0 has waited for 30 s (--ddp_timeout) in all_reduce, and rank 1, which waited "
                                   "too, does not go on (process " +
                                   std::to_string(stopped) + " on "));
  EXPECT_THAT(news.text, HasSubstr("which is stopped"));
}

TEST(WaitingRanks, OfManyThatAreMissingTenAreNamed) {
  std::vector<Fields> watches;
  for (int rank = 0; rank < 1000; ++rank) watches.push_back(parse_line(watch_line(rank, 1000)));
  WaitingRanks waiting;
  waiting.hear(watches[3], parse_line("cmd=wait"));
  const RankNews news = waiting.overdue_news(watches[3], parse_line("cmd=late seconds=30 text=all_reduce"), watches);
  EXPECT_THAT(news.text, HasSubstr("rank 0, rank 1, rank 2, rank 4, "));
  EXPECT_THAT(news.text, HasSubstr(" and 989 more ranks have not come to all_reduce for 30 s"));
  EXPECT_THAT(news.text, HasSubstr("; and 989 more)"));
  EXPECT_LT(stop_line(news).size(), 2048) << "who reads lines takes no longer ones for ranks";
}

}  // namespace
}  // namespace strake::comm::rank_wait_test
