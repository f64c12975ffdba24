#include "strake/comm/rank_watch.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "strake/comm/pmi_server.h"
#include "strake/core/error.h"
#include "strake/core/log.h"

namespace strake::comm {
namespace {

void say(int socket, const std::string& line) {
  const std::string text = line + "\n";
  ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
}

// What the server says until it closes the connection.
std::string hear(int socket) {
  std::string heard;
  std::array<char, 256> buffer{};
  for (ssize_t got = 0; (got = ::recv(socket, buffer.data(), buffer.size(), 0)) > 0;) {
    heard.append(buffer.data(), static_cast<size_t>(got));
  }
  return heard;
}

}  // namespace

RankWatch::RankWatch(const std::string& address, int port, int rank) : socket_(connect_to_pmi_server(address, port)) {
  say(socket_, fmt::format("cmd=watch rank={}", rank));
  thread_ = std::thread([this] { watch(); });
}

RankWatch::~RankWatch() {
  leaving_ = true;
  say(socket_, "cmd=leave");
  ::shutdown(socket_, SHUT_RDWR);
  thread_.join();
  ::close(socket_);
}

void RankWatch::watch() const {
  const std::string heard = hear(socket_);
  if (leaving_) return;
  constexpr std::string_view kRank = "cmd=stop rank=";
  const size_t told = heard.find(kRank);
  const std::string rank =
      told == std::string::npos ? "0" : heard.substr(told + kRank.size(), heard.find('\n', told) - told - kRank.size());
  log::error("rank {} is gone: this rank cannot go on without it and stops", rank);
  std::_Exit(exit_code(ErrorKind::kComm));  // other threads are in the middle of MPI calls that will never return
}

}  // namespace strake::comm
