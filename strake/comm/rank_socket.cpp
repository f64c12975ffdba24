#include "strake/comm/rank_socket.h"

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

struct AddressInfo {
  AddressInfo(const std::string& address, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    const int code = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &first);
    require(code == 0, ErrorKind::kComm, "cannot resolve {}: {}", address, ::gai_strerror(code));
  }
  ~AddressInfo() { ::freeaddrinfo(first); }
  AddressInfo(const AddressInfo&) = delete;
  AddressInfo& operator=(const AddressInfo&) = delete;
  addrinfo* first = nullptr;
};

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

int listen_on(const std::string& address, int port, int backlog) {
  const AddressInfo info(address, port);
  const int socket = ::socket(info.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  share_port(socket);
  const bool listening =
      ::bind(socket, info.first->ai_addr, info.first->ai_addrlen) == 0 && ::listen(socket, backlog) == 0;
  if (!listening) {
    const int reason = errno;
    ::close(socket);
    fail(ErrorKind::kComm, "cannot listen on {}:{}: {}", address, port, std::strerror(reason));
  }
  return socket;
}

int port_of(int socket) {
  sockaddr_in bound{};
  socklen_t length = sizeof(bound);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.sin_port);
}

int try_to_connect(const std::string& address, int port) {
  const AddressInfo info(address, port);
  const int socket = ::socket(info.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  share_port(socket);
  if (::connect(socket, info.first->ai_addr, info.first->ai_addrlen) == 0 && !is_connected_to_itself(socket)) {
    keep_alive(socket);
    return socket;
  }
  leave_port(socket);
  return -1;
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
}

}  // namespace strake::comm
