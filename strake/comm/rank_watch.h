#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace strake::comm {

// Ends this process if another rank of the job dies, where no launcher does: a rank that waits for a dead one in MPI
// would wait for ever. Keeps a connection to the job's PmiServer, which hears of the end of any rank.
class RankWatch {
 public:
  // Error (kComm) if the server does not answer.
  RankWatch(const std::string& address, int port, int rank);
  // From here on ranks may end.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  void watch() const;

  int socket_;
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

}  // namespace strake::comm
