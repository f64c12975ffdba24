#pragma once

#include <memory>
#include <string>

namespace strake::comm {

// The key-value server of MPICH's start-up protocol PMI-1 (wire protocol: one "key=value ..." line each way), so that
// any launcher that can set environment variables makes MPI ranks, without mpiexec or ssh. Serves in threads of its own
// until the object is destroyed. If a rank's connection ends before it finalized, all connections are closed, and those
// that watch (see rank_watch.h, two commands more than PMI-1 has) are told which rank it was.
class PmiServer {
 public:
  // Listens on address:port (port 0: any, see port()). Error (kComm) if it cannot.
  PmiServer(const std::string& address, int port, int num_ranks);
  ~PmiServer();
  PmiServer(const PmiServer&) = delete;
  PmiServer& operator=(const PmiServer&) = delete;

  int port() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

// A connected socket, which the caller closes. Tries for a minute; then Error (kComm).
int connect_to_pmi_server(const std::string& address, int port);

// One line of the protocol, given without its end; false if the other side is gone.
bool send_line(int socket, const std::string& line);

}  // namespace strake::comm
