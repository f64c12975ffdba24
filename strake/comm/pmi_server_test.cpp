#include "strake/comm/pmi_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "strake/core/error.h"

namespace strake::comm {
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

 private:
  int socket_;
};

TEST(PmiServer, RanksExchangeValuesAcrossABarrier) {
  const PmiServer server("127.0.0.1", 0, 2);
  Client a(server.port());
  Client b(server.port());
  EXPECT_EQ(a.ask("cmd=initack pmiid=0"), "cmd=initack rc=0");
  EXPECT_EQ(a.hear(), "cmd=set size=2");
  EXPECT_EQ(a.hear(), "cmd=set rank=0");
  a.hear();
  EXPECT_EQ(a.ask("cmd=put kvsname=strake key=card value=here#1"), "cmd=put_result rc=0 msg=success");
  a.say("cmd=barrier_in");
  EXPECT_EQ(b.ask("cmd=barrier_in"), "cmd=barrier_out rc=0");
  EXPECT_EQ(a.hear(), "cmd=barrier_out rc=0");
  EXPECT_EQ(b.ask("cmd=get kvsname=strake key=card"), "cmd=get_result rc=0 msg=success value=here#1");
  EXPECT_EQ(b.ask("cmd=get kvsname=strake key=none"), "cmd=get_result rc=-1 msg=key_not_found");
  EXPECT_EQ(a.ask("cmd=finalize"), "cmd=finalize_ack rc=0");
}

TEST(PmiServer, ARankThatDiesFreesTheOthers) {
  const PmiServer server("127.0.0.1", 0, 2);
  Client waiting(server.port());
  waiting.say("cmd=barrier_in");
  {
    Client dying(server.port());
    dying.ask("cmd=init pmi_version=1 pmi_subversion=1");
  }
  EXPECT_EQ(waiting.hear(), "");
}

TEST(PmiServer, ARankThatAbortsFreesTheOthersAndThoseThatComeLater) {
  const PmiServer server("127.0.0.1", 0, 3);
  Client waiting(server.port());
  waiting.say("cmd=barrier_in");
  Client aborting(server.port());
  aborting.say("cmd=abort exitcode=1");  // and stays connected
  EXPECT_EQ(waiting.hear(), "");
  Client late(server.port());
  EXPECT_EQ(late.hear(), "");
}

TEST(PmiServer, ABusyPortIsAnError) {
  const PmiServer server("127.0.0.1", 0, 1);
  EXPECT_THROW(PmiServer("127.0.0.1", server.port(), 1), Error);
}

}  // namespace
}  // namespace strake::comm
