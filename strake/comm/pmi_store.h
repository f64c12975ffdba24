#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "strake/comm/rank_lines.h"

namespace strake::comm {

// The values and barriers of MPICH's start-up protocol PMI-1 (wire protocol: one "key=value ..." line each way). Safe
// from any thread.
class PmiStore {
 public:
  explicit PmiStore(int num_ranks) : num_ranks_(num_ranks) {}

  // Answers a line from MPI. False if the other side is gone.
  bool answer(int socket, const Fields& fields);
  // Before the socket is closed: nobody waits there any more.
  void forget(int socket);

 private:
  std::string put(const Fields& fields);
  std::string get(const Fields& fields) const;
  bool enter_barrier(int socket);

  const int num_ranks_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::vector<int> waiting_;  // sockets
};

}  // namespace strake::comm
