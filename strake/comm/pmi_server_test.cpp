#include "strake/comm/pmi_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "strake/comm/rank_socket.h"
#include "strake/core/error.h"
#include "strake/core/test_error.h"

namespace strake::comm::pmi_server_test {
namespace {

class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { ::close(socket_); }

  void say(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  std::string hear() {  // one line, or "" at the end of the connection
    std::string line;
    for (char c = 0; ::recv(socket_, &c, 1, 0) == 1 && c != '\n';) line += c;
    return line;
  }
  std::string ask(const std::string& line) {
    say(line);
    return hear();
  }
  void start_mpi(int rank) {
    EXPECT_EQ(ask(fmt::format("cmd=initack pmiid={}", rank)), "cmd=initack rc=0");
    for (int line = 0; line < 3; ++line) EXPECT_TRUE(hear().starts_with("cmd=set "));
  }

 private:
  int socket_;
};

TEST(PmiServer, RanksExchangeValuesAcrossABarrier) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 2});
  Client a(server.port());
  Client b(server.port());
  EXPECT_EQ(a.ask("cmd=initack pmiid=0"), "cmd=initack rc=0");
  EXPECT_EQ(a.hear(), "cmd=set size=2");
  EXPECT_EQ(a.hear(), "cmd=set rank=0");
  a.hear();
  b.start_mpi(1);
  EXPECT_EQ(a.ask("cmd=put kvsname=strake key=card value=here#1"), "cmd=put_result rc=0 msg=success");
  a.say("cmd=barrier_in");
  EXPECT_EQ(b.ask("cmd=barrier_in"), "cmd=barrier_out rc=0");
  EXPECT_EQ(a.hear(), "cmd=barrier_out rc=0");
  EXPECT_EQ(b.ask("cmd=get kvsname=strake key=card"), "cmd=get_result rc=0 msg=success value=here#1");
  EXPECT_EQ(b.ask("cmd=get kvsname=strake key=none"), "cmd=get_result rc=-1 msg=key_not_found");
  EXPECT_EQ(a.ask("cmd=finalize"), "cmd=finalize_ack rc=0");
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST(PmiServer, StrangersThatComeAndGoLeaveNothingBehind) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 2});
  const size_t before = open_descriptors();
  for (int i = 0; i < 200; ++i) Client(server.port()).ask("GET / HTTP/1.1");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (open_descriptors() > before && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(open_descriptors(), before);
  Client rank(server.port());
  EXPECT_EQ(rank.ask("cmd=initack pmiid=0"), "cmd=initack rc=0");
}

TEST(PmiServer, ARankThatDiesFreesTheOthers) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 2});
  Client waiting(server.port());
  waiting.start_mpi(0);
  waiting.say("cmd=barrier_in");
  {
    Client dying(server.port());
    dying.start_mpi(1);
    dying.ask("cmd=init pmi_version=1 pmi_subversion=1");
  }
  EXPECT_EQ(waiting.hear(), "");
}

TEST(PmiServer, ARankThatAbortsFreesTheOthersAndThoseThatComeLater) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 3});
  Client waiting(server.port());
  waiting.start_mpi(0);
  waiting.say("cmd=barrier_in");
  Client aborting(server.port());
  aborting.start_mpi(1);
  aborting.say("cmd=abort exitcode=1");  // and stays connected
  EXPECT_EQ(waiting.hear(), "");
  Client late(server.port());
  EXPECT_EQ(late.hear(), "");
}

// A rank that watches.
struct Watcher : Client {
  Watcher(int port, int rank, int num_ranks) : Client(port) {
    say(fmt::format("cmd=watch rank={} size={} host=here pid={}", rank, num_ranks, 100 + rank));
  }
};

TEST(PmiServer, RanksHearWhenAllHaveCome) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 2});
  Watcher a(server.port(), 0, 2);
  Watcher b(server.port(), 1, 2);
  EXPECT_EQ(a.hear(), "cmd=go");
  EXPECT_EQ(b.hear(), "cmd=go");
}

TEST(PmiServer, OnlyTheFirstDeathIsNews) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 3});
  Watcher watching(server.port(), 0, 3);
  const std::string told =
      "cmd=stop rank=1 kind=4 text=rank 1 is gone: the others cannot go on without it (its process 101 on here ended "
      "without a word: killed, or crashed)";
  {
    Watcher second(server.port(), 2, 3);
    {
      Watcher first(server.port(), 1, 3);
      EXPECT_EQ(first.hear(), "cmd=go");
    }
    EXPECT_EQ(watching.hear(), "cmd=go");
    EXPECT_EQ(watching.hear(), told);
  }
  Watcher late(server.port(), 2, 3);
  EXPECT_EQ(late.hear(), told);
}

TEST(PmiServer, ARankThatGivesUpTellsWhy) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 2});
  Watcher watching(server.port(), 0, 2);
  Watcher failing(server.port(), 1, 2);
  EXPECT_EQ(failing.hear(), "cmd=go");
  failing.say("cmd=fail kind=3 text=no such file: a b");
  EXPECT_EQ(failing.hear(), "cmd=stop rank=1 kind=3 gave_up=1 text=rank 1 stopped: no such file: a b");
  EXPECT_EQ(watching.hear(), "cmd=go");
  EXPECT_EQ(watching.hear(), "cmd=stop rank=1 kind=3 gave_up=1 text=rank 1 stopped: no such file: a b");
}

TEST(PmiServer, ARankThatIsDoneMayEnd) {
  auto server = std::make_unique<PmiServer>("127.0.0.1", 0, PmiJob{.num_ranks = 2});
  Watcher watching(server->port(), 0, 2);
  {
    Watcher done(server->port(), 1, 2);
    EXPECT_EQ(done.hear(), "cmd=go");
    done.say("cmd=leave");
  }
  EXPECT_EQ(watching.hear(), "cmd=go");
  server.reset();
  EXPECT_EQ(watching.hear(), "cmd=bye");
}

TEST(PmiServer, ServesTheOthersWhenRankZeroIsDoneFirst) {
  auto server = std::make_unique<PmiServer>("127.0.0.1", 0, PmiJob{.num_ranks = 2});
  auto zero = std::make_unique<Watcher>(server->port(), 0, 2);
  auto other = std::make_unique<Watcher>(server->port(), 1, 2);
  Client mpi_of_other(server->port());
  mpi_of_other.start_mpi(1);
  mpi_of_other.ask("cmd=init pmi_version=1 pmi_subversion=1");
  EXPECT_EQ(zero->hear(), "cmd=go");
  std::thread ending([&] {
    zero->say("cmd=leave");
    zero.reset();
    server.reset();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(mpi_of_other.ask("cmd=finalize"), "cmd=finalize_ack rc=0");
  other->say("cmd=leave");
  other.reset();
  ending.join();
}

TEST(PmiServer, TheEndOfARanksMpiWaitsForTheDeathThatCausedIt) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 3});
  Watcher watching(server.port(), 0, 3);
  Watcher survivor(server.port(), 2, 3);
  auto dying = std::make_unique<Watcher>(server.port(), 1, 3);
  EXPECT_EQ(watching.hear(), "cmd=go");
  Client mpi_of_survivor(server.port());
  mpi_of_survivor.ask("cmd=initack pmiid=2");
  mpi_of_survivor.say("cmd=abort exitcode=6");
  dying.reset();
  EXPECT_TRUE(watching.hear().starts_with("cmd=stop rank=1 "));
}

TEST(PmiServer, ARankThatDoesNotComeIsNamed) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 3, .patience = std::chrono::seconds(1)});
  Watcher first(server.port(), 0, 3);
  Watcher last(server.port(), 2, 3);
  const std::string told =
      "cmd=stop rank=1 kind=4 text=rank 1 is gone: the others cannot go on without it (it did not come within 1 s of "
      "the "
      "start)";
  EXPECT_EQ(first.hear(), told);
  EXPECT_EQ(last.hear(), told);
}

TEST(PmiServer, TwoProcessesOfOneRankAreToldSo) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 3});
  Watcher zero(server.port(), 0, 3);
  Watcher one(server.port(), 1, 3);
  Watcher again(server.port(), 1, 3);
  for (Watcher* watcher : {&zero, &one, &again}) {
    EXPECT_EQ(watcher->hear(),
              "cmd=stop rank=1 kind=0 text=two processes were started as rank 1 (RANK): process 101 on here and "
              "process 101 on here");
  }
}

TEST(PmiServer, ARankOfAnotherNumberOfRanksIsToldSo) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 2});
  Watcher zero(server.port(), 0, 2);
  Watcher other(server.port(), 2, 3);
  for (Watcher* watcher : {&zero, &other}) {
    EXPECT_EQ(watcher->hear(),
              "cmd=stop rank=2 kind=0 text=rank 2 was started as one of 3 ranks (WORLD_SIZE), rank 0 as one of 2");
  }
}

TEST(PmiServer, ARankOfAnotherJobStopsNothing) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 2});
  Watcher a(server.port(), 0, 2);
  Watcher b(server.port(), 1, 2);
  EXPECT_EQ(a.hear(), "cmd=go");
  EXPECT_EQ(b.hear(), "cmd=go");
  for (const auto& [rank, size] : {std::pair(1, 2), std::pair(2, 3), std::pair(0, 2)}) {
    Watcher other(server.port(), rank, size);
    EXPECT_EQ(other.hear(),
              fmt::format("cmd=stop rank={} kind=0 text=rank {} came to port {} (the one behind MASTER_PORT), where "
                          "another job has all of its ranks: each job on a host needs a MASTER_PORT of its own",
                          rank, rank, server.port()));
    EXPECT_EQ(other.hear(), "");
  }
  a.say("cmd=fail kind=1 text=its own");
  EXPECT_NE(b.hear().find("its own"), std::string::npos) << "the job goes on, and hears its ranks";
}

TEST(PmiServer, WhoIsNoRankStopsNothing) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 2});
  Watcher a(server.port(), 0, 2);
  {
    Client stranger(server.port());
    stranger.ask("GET / HTTP/1.1");
    EXPECT_EQ(Client(server.port()).ask("cmd=abort exitcode=1"), "") << "nor is who has not said which one it is";
    EXPECT_EQ(Client(server.port()).ask("cmd=initack pmiid=2"), "");
    Watcher unknown(server.port(), 2, 2);
    EXPECT_EQ(unknown.hear(), "");
  }
  Watcher b(server.port(), 1, 2);
  EXPECT_EQ(a.hear(), "cmd=go");
  EXPECT_EQ(b.hear(), "cmd=go");
}

TEST(PmiServer, RankZeroThatDoesNotComeIsNamed) {
  int port = 0;
  {
    const PmiServer server("127.0.0.1", 0, {.num_ranks = 1});
    port = server.port();
  }
  EXPECT_EQ(
      error_of([&] { connect_to_pmi_server("127.0.0.1", port, {.patience = std::chrono::seconds(1)}); }).text,
      fmt::format("rank 0 did not answer on 127.0.0.1:{} within 1 s (Connection refused): it did not start, or is "
                  "gone",
                  port));
}

TEST(PmiServer, AHostWithoutANameIsWaitedFor) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string text =
      error_of([] { connect_to_pmi_server("host.invalid", 1, {.patience = std::chrono::seconds(1)}); }).text;
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1)) << "it may get one meanwhile";
  EXPECT_NE(text.find("(cannot resolve host.invalid: "), std::string::npos) << text;
  EXPECT_THROW(PmiServer("host.invalid", 0, {.num_ranks = 1}), Error) << "its own name is known to a host";
}

TEST(PmiServer, ItListensWhereOtherMachinesLookForIt) {
  const auto listens_on = [](const char* host, const char* resolved) {
    in_addr address{};
    ::inet_pton(AF_INET, resolved, &address);
    std::array<char, INET_ADDRSTRLEN> text{};
    const in_addr found = address_to_listen_on(host, address);
    return std::string(::inet_ntop(AF_INET, &found, text.data(), text.size()));
  };
  EXPECT_EQ(listens_on("localhost", "127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(listens_on("127.0.0.2", "127.0.0.2"), "127.0.0.2");
  EXPECT_EQ(listens_on("10.0.0.1", "10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(listens_on("node1", "10.0.0.1"), "0.0.0.0") << "others may know it by another address";
  EXPECT_EQ(listens_on("node1", "127.0.1.1"), "0.0.0.0") << "as Debian's /etc/hosts has a host's own name";
}

TEST(PmiServer, ABusyPortIsAnError) {
  const PmiServer server("127.0.0.1", 0, {.num_ranks = 1});
  EXPECT_THROW(PmiServer("127.0.0.1", server.port(), {.num_ranks = 1}), Error);
}

}  // namespace
}  // namespace strake::comm::pmi_server_test
