#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace strake::comm {

// Hears of the death of other ranks of the job, where no launcher does: a rank that waits for a dead one in MPI would
// wait for ever. Keeps a connection to the job's PmiServer.
class RankWatch {
 public:
  // Error (kComm) if the server does not answer.
  RankWatch(const std::string& address, int port, int rank);
  // From here on ranks may end.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Error (kComm) naming a rank that is gone, if there is one. Thread-safe.
  void require_all() const;

 private:
  static constexpr int kNobody = -1;

  void watch();

  int socket_;
  std::atomic<bool> leaving_{false};
  std::atomic<int> gone_{kNobody};
  std::thread thread_;
};

}  // namespace strake::comm
