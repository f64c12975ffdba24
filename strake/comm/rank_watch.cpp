#include "strake/comm/rank_watch.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "strake/comm/pmi_server.h"
#include "strake/core/error.h"

namespace strake::comm {
namespace {

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
  send_line(socket_, fmt::format("cmd=watch rank={}", rank));
  thread_ = std::thread([this] { watch(); });
}

RankWatch::~RankWatch() {
  leaving_ = true;
  send_line(socket_, "cmd=leave");
  ::shutdown(socket_, SHUT_RDWR);
  thread_.join();
  ::close(socket_);
}

void RankWatch::require_all() const {
  const int gone = gone_;
  require(gone == kNobody, ErrorKind::kComm, "rank {} is gone: the others cannot go on without it", gone);
}

void RankWatch::watch() {
  constexpr std::string_view kRank = "cmd=stop rank=";
  const std::string heard = hear(socket_);
  if (leaving_) return;
  const size_t told = heard.find(kRank);
  int rank = 0;  // whose end ends the server, which cannot tell then
  if (told != std::string::npos) std::from_chars(heard.data() + told + kRank.size(), heard.data() + heard.size(), rank);
  gone_ = rank;
}

}  // namespace strake::comm
