#include "strake/comm/rank_guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "strake/comm/rank_lines.h"
#include "strake/comm/rank_processes.h"
#include "strake/comm/rank_wait.h"
#include "strake/core/log.h"

namespace strake::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Who is at the other end of a socket of this host: process and user.
ucred peer_of(int socket) {
  ucred peer{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t length = sizeof(peer);
  ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length);
  return peer;
}

// The process of mpiexec's that is the parent of this host's ranks, or of what they were wrapped into: it made the
// socket on which it serves PMI. 0 if there is none.
int find_launcher() {
  const char* number = std::getenv("PMI_FD");
  if (number == nullptr) return 0;
  const ucred peer = peer_of(parse_number(number));
  return peer.pid > 0 && peer.uid == ::getuid() ? peer.pid : 0;
}

// The same connection under a number above that of PMI's: Linux closes what a killed process leaves from the highest
// number down, so that the guard hears of the death before mpiexec does, which kills the others.
int renumber(int socket) {
  const int higher = ::fcntl(socket, F_DUPFD_CLOEXEC, parse_number(std::getenv("PMI_FD")) + 1);
  if (higher < 0) return socket;
  ::close(socket);
  return higher;
}

// Where the ranks of this launcher meet: a name that ends with its sockets, and is not a file.
struct MeetingPlace {
  explicit MeetingPlace(int launcher) {
    constexpr int kStartTime = 22;
    const std::string name =
        fmt::format("strake-ranks-{}-{}-{}", ::getuid(), launcher, process_stat(launcher, kStartTime));
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t length = 0;
};

// The guard's process. It has no threads: epoll tells events in their order, and mpiexec kills the survivors only after
// it has seen what this one was told first.
class RankGuard {
 public:
  // `starter` is the rank that splits this process off. It and all that are there already are known from now on:
  // mpiexec kills the others of a rank that dies unseen, and one of them would be named in its place.
  RankGuard(int listener, int launcher, const RankProcess& starter, const RankEnvironment& environment)
      : listener_(listener), launcher_(launcher), on_host_(environment.local_size), size_(environment.size) {
    add(listener_);
    add(starter);
    find_processes();
  }

  void run() {
    while (!is_over()) {
      if (is_looking()) find_processes();
      epoll_event event{};
      constexpr int kPollMilliseconds = 50;
      if (::epoll_wait(epoll_, &event, 1, kPollMilliseconds) != 1) continue;
      const int socket = event.data.fd;
      if (socket == listener_) {
        accept_rank();
      } else if (processes_.contains(socket)) {
        end_process(socket);
      } else {
        hear(socket);
      }
    }
  }

 private:
  struct Member {
    LineReader lines;
    Fields watch;
    bool is_done = false;
  };

  void add(int descriptor) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
  }

  void add(const RankProcess& process) {
    if (process.descriptor < 0) return;
    found_.insert(process.rank);
    processes_[process.descriptor] = {process.rank, process.pid};
    add(process.descriptor);
  }

  bool is_over() const {
    constexpr auto kStart = 2s;
    constexpr auto kEnd = 1500ms;  // the ranks end themselves before that
    const auto now = Clock::now();
    if (members_.empty() && processes_.empty() && now > start_ + kStart) return true;
    if (members_.empty() && static_cast<int>(came_.size()) == on_host_) return true;
    return is_told_ && (members_.empty() || now > told_at_ + kEnd);
  }

  void accept_rank() {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return;
    if (peer_of(socket).uid != ::getuid()) {
      ::close(socket);
      return;
    }
    members_.try_emplace(socket);
    add(socket);
  }

  void hear(int socket) {
    Member& member = members_[socket];
    if (!member.lines.receive(socket)) {
      if (!member.watch.empty() && !member.is_done) tell(gone_news(member.watch, member.lines.error()), Voice::kGuard);
      ::close(socket);
      members_.erase(socket);
      return;
    }
    while (const auto line = member.lines.take()) {
      const Fields fields = parse_line(*line);
      const std::string command = field(fields, "cmd");
      if (command == "watch") join(member, fields);
      if (command == "leave") member.is_done = true;
      if (command == "fail") {
        member.is_done = true;
        tell(failure_news(member.watch, fields), Voice::kRank);
      }
      if (!waiting_ranks_.hear(member.watch, fields) && command == "late") {
        std::vector<Fields> watches;
        for (const auto& other : members_) {
          if (!other.second.watch.empty()) watches.push_back(other.second.watch);  // else it has not said who it is
        }
        tell(waiting_ranks_.overdue_news(member.watch, fields, watches), Voice::kRank);
      }
    }
  }

  void join(Member& member, const Fields& watch) {
    member.watch = watch;
    came_.insert(rank_of(watch));
    // A later program of the same mpiexec has a guard of its own.
    if (static_cast<int>(came_.size()) == on_host_) ::close(std::exchange(listener_, -1));
  }

  // Processes of ranks that have not come yet, for at most two seconds: mpiexec starts all of them at once.
  bool is_looking() const { return !is_told_ && !is_searched_ && static_cast<int>(came_.size()) < on_host_; }

  void find_processes() {
    for (const RankProcess& process : find_rank_processes({.rank_variable = "PMI_RANK", .parent = launcher_}, found_)) {
      add(process);
    }
    is_searched_ = static_cast<int>(found_.size()) >= on_host_;
    if (is_searched_ || Clock::now() < start_ + 2s) return;
    is_searched_ = true;
    for (int rank = 0; rank < size_ && on_host_ == size_; ++rank) {
      if (found_.contains(rank) || came_.contains(rank)) continue;
      return tell(gone_news(rank, "its process ended at its start"), Voice::kGuard);
    }
  }

  void end_process(int descriptor) {
    const auto [rank, pid] = processes_[descriptor];
    processes_.erase(descriptor);
    ::close(descriptor);
    if (came_.contains(rank)) return;  // its connection tells
    tell(gone_news(rank, fmt::format("its process {} ended at its start: killed, or crashed", pid)), Voice::kGuard);
  }

  enum class Voice { kGuard, kRank };  // a rank that gives up says why itself

  // Only the first news count: what follows is mostly their consequence.
  void tell(const RankNews& news, Voice says) {
    if (is_told_) return;
    is_told_ = true;
    told_at_ = Clock::now();
    if (says == Voice::kGuard) {
      const std::string text = error_line(news.kind, news.text);
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    }
    for (const auto& [socket, member] : members_) send_line(socket, stop_line(news));
  }

  int epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  int listener_;
  int launcher_;
  int on_host_;
  int size_;
  Clock::time_point start_ = Clock::now();
  std::map<int, Member> members_;                 // by socket
  std::map<int, std::pair<int, int>> processes_;  // by descriptor: rank and process
  WaitingRanks waiting_ranks_;
  std::set<int> came_;
  std::set<int> found_;
  bool is_searched_ = false;
  bool is_told_ = false;
  Clock::time_point told_at_;
};

// Leaves nothing open that others wait for the end of, but stderr.
void close_all_but(const std::set<int>& kept) {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  std::error_code none;
  std::set<int> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    open.insert(parse_number(entry.path().filename()));
  }
  for (const int descriptor : open) {
    if (descriptor > STDERR_FILENO && !kept.contains(descriptor)) ::close(descriptor);
  }
}

// In a session of its own, without a parent that would have to wait for it. The caller goes on, and may die, when the
// guard has seen who is there.
void split_off(int listener, int launcher, const RankEnvironment& environment) {
  const pid_t self = ::getpid();
  const RankProcess starter{
      .rank = environment.rank, .pid = self, .descriptor = static_cast<int>(::syscall(SYS_pidfd_open, self, 0))};
  const pid_t between = ::fork();
  if (between != 0) {
    ::close(starter.descriptor);
    if (between > 0) ::waitpid(between, nullptr, 0);
    return;
  }
  ::setsid();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);  // it ends with the ranks, which may need a while to save
  try {
    close_all_but({listener, starter.descriptor});
    std::filesystem::current_path("/");
    RankGuard guard(listener, launcher, starter, environment);
    if (::fork() != 0) ::_exit(0);
    ::prctl(PR_SET_NAME, "strake-guard");
    guard.run();
  } catch (...) {
    ::_exit(1);
  }
  ::_exit(0);
}

void start_guard(const MeetingPlace& place, int launcher, const RankEnvironment& environment) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto deadline = Clock::now() + 1s;  // the guard of an earlier program may just be ending
  bool bound = false;
  while (!(bound = ::bind(listener, place.get(), place.length) == 0) && Clock::now() < deadline) {
    std::this_thread::sleep_for(10ms);
  }
  if (bound && ::listen(listener, environment.local_size) == 0) split_off(listener, launcher, environment);
  ::close(listener);
}

}  // namespace

std::optional<int> join_rank_guard(const RankEnvironment& environment) {
  const int launcher = environment.launcher == "MPICH" ? find_launcher() : 0;
  if (launcher == 0) return std::nullopt;
  const MeetingPlace place(launcher);
  if (environment.local_rank == 0) start_guard(place, launcher, environment);
  const auto deadline =
      Clock::now() + 30s;  // the first rank loads as long as this one, on a busy machine or a slow disk
  do {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket, place.get(), place.length) == 0 && peer_of(socket).uid == ::getuid()) {
      return renumber(socket);
    }
    ::close(socket);
    std::this_thread::sleep_for(10ms);
  } while (Clock::now() < deadline);
  log::warning("if a rank dies, nobody will say which one: the ranks' guard does not answer");
  return std::nullopt;
}

}  // namespace strake::comm
