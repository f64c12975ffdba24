#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "strake/comm/rank_lines.h"

namespace strake::comm {

// Between the news that a rank has failed and the end of this process, if it does not come back by itself; also what a
// dying process waits for news. Others shall stop within two seconds of a death, which a watch hears of within
// milliseconds.
inline constexpr std::chrono::seconds kGrace{1};

// Hears of the death of other ranks of the job: a rank that waits for a dead one in MPI would wait for ever. From the
// news on this process has a second to end by an Error; then it is ended here, whatever it is doing, with the news on
// stderr and the exit code of their kind. If MPI aborts the process, which it may do before the news have come, the
// news are awaited and told first. One object per process.
class RankWatch {
 public:
  enum class Server { kRankZero, kGuard };  // a guard that is gone is no news

  struct Place {
    int rank = 0;
    int num_ranks = 1;
  };

  // Takes ownership of `socket`, which is connected to a PmiServer or a guard.
  RankWatch(int socket, const Place& place, Server server);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Calls what starts MPI. MPICH may crash there when another rank dies: then too the news are awaited and told first.
  static void start_mpi(const std::function<void()>& start);

  // Returns when all ranks have come. Error (kComm) that names a rank that did not come, or is gone. `patience` is the
  // server's: if it says nothing for much longer, it is none.
  void wait_for_all(std::chrono::seconds patience);

  bool has_news() const { return has_news_; }
  // Waits a second at most.
  void wait_for_news();
  // Error that names the rank that ended the job, if there is one. Thread-safe.
  void require_all() const;

  // Tells the others why this rank ends, and returns when they know. If another rank's end came first, which is mostly
  // the cause of this one's, Error that names it; leave_launcher() is called before.
  void give_up(ErrorKind kind, const std::string& reason);
  bool hears_from_rank_zero() const { return server_ == Server::kRankZero; }
  // One line to the server.
  void say(const std::string& line);
  // This rank is done. Without this word its end is that of the others.
  void leave();
  // Of a rank that ends because another one has given up: its end shall not be news for MPICH's launcher, which would
  // kill that one before it aborts the job, and give the job the signal's exit code in place of the error's. A rank
  // that is gone or stopped aborts nothing: then the launcher has to end it.
  static void leave_launcher();
  // Before MPI closes the connection to it, or where it has to end the others: leave_launcher() does nothing then.
  static void forget_launcher();

 private:
  void watch();
  void hear(RankNews news);
  void end_process_soon();

  int socket_;
  int rank_;
  Server server_;
  std::atomic<bool> has_news_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_complete_ = false;  // all ranks have come
  bool is_leaving_ = false;
  std::optional<RankNews> news_;
  std::thread thread_;
};

}  // namespace strake::comm
