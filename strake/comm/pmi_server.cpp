#include "strake/comm/pmi_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

#include "strake/comm/pmi_store.h"
#include "strake/comm/rank_lines.h"
#include "strake/comm/rank_socket.h"
#include "strake/comm/rank_wait.h"
#include "strake/core/error.h"
#include "strake/core/parse_integer.h"

namespace strake::comm {

class PmiServer::State {
 public:
  State(const std::string& address, int port, const PmiJob& job)
      : num_ranks_(job.num_ranks),
        store_(job.num_ranks),
        patience_(job.patience),
        processes_(job.processes),
        deadline_(std::chrono::steady_clock::now() + job.patience) {
    listener_ = listen_on(address, port, num_ranks_ + 8);
    port_ = port_of(listener_);
    try {
      acceptor_ = std::thread([this] { accept_ranks(); });
    } catch (const std::system_error& error) {
      ::close(listener_);
      fail(ErrorKind::kComm, "cannot serve the ranks: {}", error.what());
    }
  }

  ~State() {
    let_others_finish();
    closing_ = true;
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [socket, watch] : watchers_) send_line(socket, "cmd=bye");
    }
    shut_down_all();
    for (Served& served : served_) served.end();
    ::close(listener_);
  }

  int port() const { return port_; }

 private:
  // A connection with the thread that serves it.
  struct Served {
    int socket;
    std::thread thread;
    bool is_over = false;

    void end() {
      thread.join();
      ::close(socket);
    }
  };
  struct Connection {
    int socket;
    std::optional<int> pmi_rank;  // if it is MPI's, which says it first
    Fields watch;                 // if it is a RankWatch's: what it said
    bool is_rank = false;
    bool is_done = false;  // the rank's end is no failure any more
  };

  // Ranks that are in the last steps of MPI's end need the server a little longer than rank 0 does, and those that are
  // on their way to a job that has ended shall hear why.
  void let_others_finish() {
    constexpr int kPauses = 200;
    for (int pause = 0; pause < kPauses && !is_nobody_left(); ++pause) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  bool is_nobody_left() {
    const std::lock_guard lock(mutex_);
    if (first_) {
      const int dead = came_.contains(first_->rank) ? 0 : 1;
      return came_.empty() || static_cast<int>(came_.size()) + dead >= num_ranks_;
    }
    // Rank 0's last word may be on its way to here.
    const bool is_rank_zero_gone =
        std::ranges::none_of(watchers_, [](const auto& watcher) { return field(watcher.second, "rank") == "0"; });
    return is_rank_zero_gone && (!is_rank_zero_done_ || watchers_.empty());
  }

  void accept_ranks() {
    constexpr int kPollMilliseconds = 50;
    while (!closing_) {
      stop_if_incomplete();
      end_those_over();
      pollfd waiting{listener_, POLLIN, 0};
      if (::poll(&waiting, 1, kPollMilliseconds) <= 0) continue;
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0 || !start_serving(socket)) {  // no more descriptors or threads: the listener stays readable
        std::this_thread::sleep_for(std::chrono::milliseconds(kPollMilliseconds));
      }
    }
  }

  // Others than ranks may come all the time, as health checks and scanners of ports do.
  void end_those_over() {
    std::list<Served> over;
    {
      const std::lock_guard lock(mutex_);
      for (auto served = served_.begin(); served != served_.end();) {
        const auto next = std::next(served);
        if (served->is_over) over.splice(over.end(), served_, served);
        served = next;
      }
    }
    for (Served& served : over) served.end();
  }

  bool start_serving(int socket) {
    keep_alive(socket);
    const std::lock_guard lock(mutex_);
    Served& served = served_.emplace_back(Served{.socket = socket, .thread = {}});
    try {
      served.thread = std::thread([this, &served] { serve(served); });
      return true;
    } catch (const std::system_error&) {
      ::close(socket);
      served_.pop_back();
      return false;
    }
  }

  // Ranks wait for each other before they start MPI, whose start has no end without all of them.
  void stop_if_incomplete() {
    std::vector<int> missing;
    {
      const std::lock_guard lock(mutex_);
      if (first_ || came_.empty()) return;
      for (int rank = 0; rank < num_ranks_; ++rank) {
        if (!came_.contains(rank)) missing.push_back(rank);
      }
    }
    for (const int rank : missing) {
      if (const auto end = processes_ == nullptr ? std::nullopt : processes_->end_of(rank)) {
        return stop_all(gone_news(rank, *end));
      }
    }
    if (missing.empty() || std::chrono::steady_clock::now() < deadline_) return;
    stop_all(gone_news(missing.front(), fmt::format("it did not come within {} s of the start", patience_.count())));
  }

  void serve(Served& served) {
    const int socket = served.socket;
    Connection connection{.socket = socket};
    LineReader lines;
    // Who comes when the job is over may want to know why, but not for long.
    pollfd waiting{socket, POLLIN, 0};
    constexpr int kLateMilliseconds = 200;
    bool open = !is_stopped() || ::poll(&waiting, 1, kLateMilliseconds) > 0;
    while (open && lines.receive(socket)) {
      for (auto line = lines.take(); open && line; line = lines.take()) open = handle(connection, parse_line(*line));
    }
    if (connection.is_rank && !connection.is_done) stop_for(connection, lines.error());
    ::shutdown(socket, SHUT_RDWR);
    store_.forget(socket);
    const std::lock_guard lock(mutex_);
    watchers_.erase(socket);
    of_mpi_.erase(socket);
    served.is_over = true;
  }

  bool handle(Connection& connection, const Fields& fields) {
    const std::string command = field(fields, "cmd");
    if (command == "watch") return add_watcher(connection, fields);
    if (!connection.watch.empty()) {
      connection.is_done = connection.is_done || command == "leave" || command == "fail";
      if (command == "fail") stop_all(failure_news(connection.watch, fields));
      hear_of_waiting(connection.watch, fields);
      if (command == "leave" && field(connection.watch, "rank") == "0") is_rank_zero_done_ = true;
      return true;
    }
    if (command == "initack") connection.pmi_rank = parse_integer<int>(field(fields, "pmiid"));
    connection.is_rank = connection.pmi_rank && *connection.pmi_rank >= 0 && *connection.pmi_rank < num_ranks_;
    if (!connection.is_rank) return false;
    {
      const std::lock_guard lock(mutex_);
      of_mpi_.insert(connection.socket);
    }
    connection.is_done = connection.is_done || command == "finalize";
    return command != "abort" && !is_stopped() && store_.answer(connection.socket, fields);
  }

  bool add_watcher(Connection& connection, const Fields& fields) {
    const int rank = rank_of(fields);
    const int size = parse_number(field(fields, "size"));
    const bool is_of_this_job = size == num_ranks_ && rank >= 0 && rank < num_ranks_;
    std::unique_lock lock(mutex_);  // up to the end: two that come as one rank at once must see each other
    if (!first_ && static_cast<int>(came_.size()) == num_ranks_) {
      send_line(connection.socket, stop_line(busy_news(rank)));
      return false;
    }
    if (const auto mistake = mistake_of(fields, rank, size)) {
      lock.unlock();
      stop_all(*mistake);
      lock.lock();
    }
    connection.watch = fields;
    connection.is_rank = is_of_this_job;
    if (is_of_this_job) came_.insert(rank);
    if (first_) return send_line(connection.socket, stop_line(*first_));
    if (!is_of_this_job) return false;
    watchers_[connection.socket] = connection.watch;
    if (static_cast<int>(came_.size()) < num_ranks_) return true;
    for (const auto& [socket, watch] : watchers_) send_line(socket, "cmd=go");
    return true;
  }

  // To one of another job, which must not end this one.
  RankNews busy_news(int rank) const {
    return {
        .rank = rank,
        .kind = ErrorKind::kUsage,
        .text = fmt::format("rank {} came to port {} (the one behind MASTER_PORT), where another job has all of its "
                            "ranks: each job on a host needs a MASTER_PORT of its own",
                            rank, port_)};
  }

  // What whoever started the ranks did wrong, if it shows in one that comes. With the lock.
  std::optional<RankNews> mistake_of(const Fields& watch, int rank, int size) {
    const auto news = [rank](std::string text) {
      return RankNews{.rank = rank, .kind = ErrorKind::kUsage, .text = std::move(text)};
    };
    if (size > 0 && size != num_ranks_) {
      return news(fmt::format("rank {} was started as one of {} ranks (WORLD_SIZE), rank 0 as one of {}", rank, size,
                              num_ranks_));
    }
    for (const auto& watcher : watchers_) {
      if (rank_of(watcher.second) != rank) continue;
      return news(fmt::format("two processes were started as rank {} (RANK): {} and {}", rank,
                              process_of(watcher.second), process_of(watch)));
    }
    return std::nullopt;
  }

  void hear_of_waiting(const Fields& watch, const Fields& said) {
    RankNews news;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_ranks_.hear(watch, said) || field(said, "cmd") != "late") return;
      std::vector<Fields> watches;
      for (const auto& watcher : watchers_) watches.push_back(watcher.second);
      news = waiting_ranks_.overdue_news(watch, said, watches);
    }
    stop_all(news);
  }

  // A rank died: its peers must not wait for it.
  void stop_for(const Connection& connection, int error) {
    if (!connection.watch.empty()) return stop_all(gone_news(connection.watch, error));
    // MPI may give up because another rank has died, whose connections are closed a little later than its memory is
    // freed: the rank's own watch tells when it ends itself.
    constexpr int kPauses = 50;
    const int rank = connection.pmi_rank.value_or(0);
    for (int pause = 0; pause < kPauses && is_watching(rank) && !is_stopped(); ++pause) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    stop_all(gone_news(rank, "its MPI ended"));
  }

  bool is_watching(int rank) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(watchers_, [&](const auto& watcher) { return rank_of(watcher.second) == rank; });
  }

  bool is_stopped() {
    const std::lock_guard lock(mutex_);
    return first_.has_value() || closing_;
  }

  // Only the first news count: what follows is mostly their consequence.
  void stop_all(const RankNews& news) {
    const std::lock_guard lock(mutex_);
    if (first_ || closing_) return;
    first_ = news;
    // Rank 0 last: it may end at once, and the server with it.
    for (const bool is_zero : {false, true}) {
      for (const auto& [socket, watch] : watchers_) {
        if ((field(watch, "rank") == "0") == is_zero) send_line(socket, stop_line(news));
      }
    }
    // Not those that have not said yet what they are: a rank that is about to watch shall hear the news, too.
    for (const int socket : of_mpi_) ::shutdown(socket, SHUT_RDWR);
  }

  void shut_down_all() {
    const std::lock_guard lock(mutex_);
    for (const Served& served : served_) ::shutdown(served.socket, SHUT_RDWR);
  }

  int num_ranks_;
  PmiStore store_;
  std::chrono::seconds patience_;
  RankRollCall* processes_;
  std::chrono::steady_clock::time_point deadline_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> closing_{false};
  std::atomic<bool> is_rank_zero_done_{false};
  std::thread acceptor_;
  std::mutex mutex_;
  std::optional<RankNews> first_;  // why the job cannot go on
  std::list<Served> served_;
  std::set<int> of_mpi_;            // sockets
  std::map<int, Fields> watchers_;  // by socket
  WaitingRanks waiting_ranks_;
  std::set<int> came_;
};

PmiServer::PmiServer(const std::string& address, int port, const PmiJob& job)
    : state_(std::make_unique<State>(address, port, job)) {}
PmiServer::~PmiServer() = default;
int PmiServer::port() const { return state_->port(); }

int connect_to_pmi_server(const std::string& address, int port, const PmiJob& job) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + job.patience;
  std::string obstacle;
  do {
    const ConnectionAttempt attempt = try_to_connect(address, port);
    if (attempt.socket >= 0) return attempt.socket;
    obstacle = attempt.obstacle;
    const auto end = job.processes == nullptr ? std::nullopt : job.processes->end_of(0);
    if (end) throw Error(ErrorKind::kComm, gone_news(0, *end).text);
    std::this_thread::sleep_for(20ms);
  } while (std::chrono::steady_clock::now() < deadline);
  fail(ErrorKind::kComm, "rank 0 did not answer on {}:{} within {} s ({}): it did not start, or is gone", address, port,
       job.patience.count(), obstacle);
}

}  // namespace strake::comm
