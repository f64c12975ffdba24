#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "strake/comm/rank_processes.h"

namespace strake::comm {

struct PmiJob {
  int num_ranks = 1;
  std::chrono::seconds patience{60};  // with ranks that do not come
  RankRollCall* processes = nullptr;  // of ranks, if all are on this host; outlives the server or the call
};

// The key-value server of MPICH's start-up protocol PMI-1 (wire protocol: one "key=value ..." line each way), so that
// any launcher that can set environment variables makes MPI ranks, without mpiexec or ssh. Serves in threads of its own
// until the object is destroyed. Ranks that watch (rank_watch.h, with the lines of rank_lines.h) hear when all have
// come, and which rank was the first to end before it was done, or did not come; MPI's connections are closed then.
class PmiServer {
 public:
  // Listens on address:port (port 0: any, see port()). Error (kComm) if it cannot.
  PmiServer(const std::string& address, int port, const PmiJob& job);
  ~PmiServer();
  PmiServer(const PmiServer&) = delete;
  PmiServer& operator=(const PmiServer&) = delete;

  int port() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

// A connected socket, which the caller closes. Error (kComm) if rank 0 does not come.
int connect_to_pmi_server(const std::string& address, int port, const PmiJob& job);

}  // namespace strake::comm
