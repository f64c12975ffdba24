#include "strake/comm/rank_lines.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace strake::comm::rank_lines_test {
namespace {

TEST(RankLines, OnlyTheTextHasSpaces) {
  const Fields fields = parse_line("cmd=fail kind=4 text=rank=9 wrote kind=0 to a b.json");
  EXPECT_EQ(field(fields, "cmd"), "fail");
  EXPECT_EQ(field(fields, "kind"), "4");
  EXPECT_EQ(field(fields, "rank"), "");
  EXPECT_EQ(field(fields, "text"), "rank=9 wrote kind=0 to a b.json");
}

TEST(RankLines, NewsArriveAsTheyWereSent) {
  const Fields watch = parse_line(watch_line(2, 3));
  const RankNews sent = failure_news(watch, parse_line(fail_line(ErrorKind::kIo, "cannot write a b:\nno space")));
  const RankNews heard = parse_news(parse_line(stop_line(sent)));
  EXPECT_EQ(heard.rank, 2);
  EXPECT_EQ(heard.kind, ErrorKind::kIo);
  EXPECT_EQ(heard.text, "rank 2 stopped: cannot write a b: no space");
}

TEST(RankLines, NewsOfAnUnknownKindAreOurMistake) {
  EXPECT_EQ(parse_news(parse_line("cmd=stop rank=1 kind=99 text=x")).kind, ErrorKind::kInternal);
  EXPECT_EQ(parse_news(parse_line("cmd=stop rank=1 kind=-1 text=x")).kind, ErrorKind::kInternal);
}

TEST(RankLines, ABrokenNetworkIsNoCrash) {
  const Fields watch = parse_line("cmd=watch rank=2 size=3 host=node7 pid=4711");
  for (const int error : {0, ECONNRESET}) {
    EXPECT_EQ(gone_news(watch, error).text,
              "rank 2 is gone: the others cannot go on without it (its process 4711 on node7 ended without a word: "
              "killed, or crashed)");
  }
  EXPECT_EQ(gone_news(watch, ETIMEDOUT).text,
            "rank 2 is gone: the others cannot go on without it (its process 4711 on node7: the connection broke off "
            "(Connection timed out): its machine, or the network)");
}

TEST(RankLines, TheReaderKnowsWhyAConnectionEnded) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  LineReader lines;
  ::close(ends[0]);
  EXPECT_FALSE(lines.receive(ends[1]));
  EXPECT_EQ(lines.error(), 0);
  ::close(ends[1]);
  ASSERT_EQ(::pipe(ends.data()), 0);
  EXPECT_FALSE(lines.receive(ends[0]));
  EXPECT_EQ(lines.error(), ENOTSOCK);
  for (const int end : ends) ::close(end);
}

TEST(RankLines, LinesComeOutWholeHoweverTheyWereSent) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  LineReader lines;
  ASSERT_EQ(::send(ends[0], "cmd=", 4, 0), 4);
  ASSERT_TRUE(lines.receive(ends[1]));
  EXPECT_EQ(lines.take(), std::nullopt);
  ASSERT_EQ(::send(ends[0], "go\ncmd=bye\n", 11, 0), 11);
  ASSERT_TRUE(lines.receive(ends[1]));
  EXPECT_EQ(lines.take(), "cmd=go");
  EXPECT_EQ(lines.take(), "cmd=bye");
  EXPECT_EQ(lines.take(), std::nullopt);
  ::close(ends[0]);
  EXPECT_FALSE(lines.receive(ends[1]));
  ::close(ends[1]);
}

TEST(RankLines, ALineWithoutEndIsNotReadForEver) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  LineReader lines;
  const std::string chunk(1000, 'x');
  bool open = true;
  for (int sent = 0; open && sent < 10; ++sent) {
    ASSERT_EQ(::send(ends[0], chunk.data(), chunk.size(), 0), 1000);
    open = lines.receive(ends[1]);
  }
  EXPECT_FALSE(open);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace strake::comm::rank_lines_test
