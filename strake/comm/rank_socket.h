#pragma once

#include <string>

// TCP between ranks and the server of their job. The caller closes sockets.
namespace strake::comm {

// Listens on address:port (port 0: any). Error (kComm) if it cannot.
int listen_on(const std::string& address, int port, int backlog);
// Of a socket that listens.
int port_of(int socket);

// A connection, or nothing (-1) if nobody listens there. Error (kComm) for an address that cannot be resolved.
int try_to_connect(const std::string& address, int port);

// A host that is gone says nothing: within 15 seconds its connection counts as closed.
void keep_alive(int socket);

}  // namespace strake::comm
