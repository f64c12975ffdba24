#pragma once

#include <netinet/in.h>

#include <string>
#include <string_view>

// TCP (IPv4) between ranks and the server of their job. The caller closes sockets.
namespace strake::comm {

// Where a server listens that others look for by this name of a host, which other machines may know by another address:
// Debian's /etc/hosts has 127.0.1.1 for a host's own one, and a host with several networks has several. The server of a
// name listens on all that the host has, but for `localhost`; that of a number on that address.
in_addr address_to_listen_on(std::string_view host, in_addr resolved);

// Listens on host:port (port 0: any). Error (kComm) if it cannot.
int listen_on(const std::string& host, int port, int backlog);
// Of a socket that listens.
int port_of(int socket);

// Or why there is none: nobody listens there, or nobody has that name yet, as in clusters that name a host when it is
// up.
struct ConnectionAttempt {
  int socket = -1;
  std::string obstacle;  // where the socket is -1
};
ConnectionAttempt try_to_connect(const std::string& host, int port);

// A host that is gone says nothing: within 15 seconds its connection counts as closed.
void keep_alive(int socket);

}  // namespace strake::comm
