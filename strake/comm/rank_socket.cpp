#include "strake/comm/rank_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "strake/core/error.h"

namespace strake::comm {
namespace {

constexpr int kConnectSeconds = 5;  // of one attempt

// Of IPv4, the only one that MPICH's ranks look for their server by: `localhost` may be ::1 as well. Or why not.
struct ResolvedHost {
  sockaddr_in address{};
  std::string obstacle;  // empty: resolved
};
ResolvedHost resolve(const std::string& host, int port) {
  ResolvedHost resolved;
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first);
  if (code != 0) {
    resolved.obstacle = fmt::format("cannot resolve {}: {}", printable(host), ::gai_strerror(code));
    return resolved;
  }
  std::memcpy(&resolved.address, first->ai_addr, sizeof(resolved.address));
  ::freeaddrinfo(first);
  return resolved;
}

// Of a connect(), too: where a firewall drops packets, TCP would try for two minutes.
void set_patience(int socket, int seconds) {
  const timeval patience{.tv_sec = seconds, .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

// With connections that have ended, and with those of other sockets that share it.
void share_port(int socket) {
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

// As TCP may do when nobody listens, if the port is one of those that it gives to those that connect.
bool is_connected_to_itself(int socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof(own);
  socklen_t peer_length = sizeof(peer);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_length);
  ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_length);
  return own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

// A connection of a rank to itself would keep rank 0 from listening on this port, also after its end.
void leave_port(int socket) {
  const linger none{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
  ::close(socket);
}

}  // namespace

in_addr address_to_listen_on(std::string_view host, in_addr resolved) {
  in_addr number{};
  const bool is_number = ::inet_pton(AF_INET, std::string(host).c_str(), &number) == 1;
  return host == "localhost" || is_number ? resolved : in_addr{.s_addr = htonl(INADDR_ANY)};
}

int listen_on(const std::string& host, int port, int backlog) {
  ResolvedHost resolved = resolve(host, port);
  if (!resolved.obstacle.empty()) fail(ErrorKind::kComm, "{}", resolved.obstacle);
  resolved.address.sin_addr = address_to_listen_on(host, resolved.address.sin_addr);
  const auto* const address = reinterpret_cast<const sockaddr*>(&resolved.address);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  share_port(socket);
  bool listening = ::bind(socket, address, sizeof(resolved.address)) == 0;
  if (!listening && errno == EADDRNOTAVAIL) {  // others reach this host by an address of a service's or a router's
    resolved.address.sin_addr.s_addr = htonl(INADDR_ANY);
    listening = ::bind(socket, address, sizeof(resolved.address)) == 0;
  }
  listening = listening && ::listen(socket, backlog) == 0;
  if (!listening) {
    const int reason = errno;
    ::close(socket);
    fail(ErrorKind::kComm, "cannot listen on {}:{}: {}", host, port, std::strerror(reason));
  }
  return socket;
}

int port_of(int socket) {
  sockaddr_in bound{};
  socklen_t length = sizeof(bound);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.sin_port);
}

ConnectionAttempt try_to_connect(const std::string& host, int port) {
  const ResolvedHost resolved = resolve(host, port);
  if (!resolved.obstacle.empty()) return {.obstacle = resolved.obstacle};
  const auto* const address = reinterpret_cast<const sockaddr*>(&resolved.address);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  share_port(socket);
  set_patience(socket, kConnectSeconds);
  const bool is_connected = ::connect(socket, address, sizeof(resolved.address)) == 0;
  const int reason = is_connected ? ECONNREFUSED : errno == EINPROGRESS ? ETIMEDOUT : errno;
  if (is_connected && !is_connected_to_itself(socket)) {
    set_patience(socket, 0);
    keep_alive(socket);
    return {.socket = socket};
  }
  leave_port(socket);
  return {.obstacle = std::strerror(reason)};
}

void keep_alive(int socket) {
  const int on = 1;
  const int idle_seconds = 5;
  const int interval_seconds = 2;
  const int probes = 5;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof(idle_seconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof(interval_seconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  // Nobody is probed while a line that was sent to him has not arrived, which TCP tries for a quarter of an hour.
  const int unanswered_milliseconds = 1000 * (idle_seconds + probes * interval_seconds);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_milliseconds, sizeof(unanswered_milliseconds));
}

}  // namespace strake::comm
