#include "strake/comm/rank_watch.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace strake::comm {
namespace {

using namespace std::chrono_literals;

// What to say when this process ends in MPI. Handlers of signals and of exit() reach nothing else.
struct LastWords {
  std::atomic<bool> is_watching{false};
  std::atomic<bool> are_known{false};
  std::atomic<int> exit_code{0};
  std::atomic<int> launcher{-1};  // the connection to MPICH's, of PMI-1; or none that is to be left
  std::atomic<size_t> length{0};
  std::array<char, 4096> text{};
};
LastWords last_words;

// Only calls that a signal handler may make. Returns if there are no news.
void await_and_say_last_words() {
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 5'000'000};
  for (auto waited = 0ms; last_words.is_watching && !last_words.are_known && waited < kGrace; waited += 5ms) {
    ::nanosleep(&kPause, nullptr);
  }
  if (!last_words.is_watching || !last_words.are_known) return;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, last_words.text.data(), last_words.length);
  RankWatch::leave_launcher();
  ::_exit(last_words.exit_code);
}

void on_abort(int signal) {
  await_and_say_last_words();
  std::signal(signal, SIG_DFL);  // abort() raises it again
}

// Whose handler of crashes it was before: the one of UCX, which prints a backtrace.
struct sigaction crash_handler_before{};

void on_crash(int signal) {
  await_and_say_last_words();
  ::sigaction(signal, &crash_handler_before, nullptr);  // the instruction crashes again
}

void prepare_last_words() {
  static const bool is_prepared = [] {
    std::signal(SIGABRT, on_abort);         // UCX: a transfer from a process that is no more
    std::signal(SIGPIPE, SIG_IGN);          // MPICH's start: a line to a server that is no more
    std::atexit(await_and_say_last_words);  // MPICH: its errors call exit()
    return true;
  }();
  const char* const socket = std::getenv("PMI_FD");
  const bool is_hydra = std::getenv("HYDI_CONTROL_FD") != nullptr;  // others speak later versions
  last_words.launcher = is_hydra && socket != nullptr ? parse_number(socket) : -1;
  last_words.are_known = false;
  last_words.is_watching = is_prepared;
}

void set_last_words(const RankNews& news) {
  if (last_words.are_known) return;
  const std::string text = error_line(news.kind, news.text);
  last_words.length = std::min(text.size(), last_words.text.size());
  std::memcpy(last_words.text.data(), text.data(), last_words.length);
  last_words.exit_code = exit_code(news.kind);
  if (!news.gave_up) RankWatch::forget_launcher();
  last_words.are_known = true;
}

}  // namespace

RankWatch::RankWatch(int socket, const Place& place, Server server)
    : socket_(socket), rank_(place.rank), server_(server) {
  prepare_last_words();
  send_line(socket_, watch_line(place.rank, place.num_ranks));
  thread_ = std::thread([this] { watch(); });
}

RankWatch::~RankWatch() {
  last_words.is_watching = false;
  {
    const std::lock_guard lock(mutex_);
    is_leaving_ = true;
  }
  changed_.notify_all();
  ::shutdown(socket_, SHUT_RDWR);
  thread_.join();
  ::close(socket_);
}

void RankWatch::start_mpi(const std::function<void()>& start) {
  struct CrashesAwaitNews {
    CrashesAwaitNews() {
      struct sigaction ours{};
      ours.sa_handler = on_crash;
      ::sigaction(SIGSEGV, &ours, &crash_handler_before);
    }
    ~CrashesAwaitNews() { ::sigaction(SIGSEGV, &crash_handler_before, nullptr); }
    CrashesAwaitNews(const CrashesAwaitNews&) = delete;
    CrashesAwaitNews& operator=(const CrashesAwaitNews&) = delete;
  };
  const CrashesAwaitNews crashes_await_news;
  start();
}

void RankWatch::wait_for_all(std::chrono::seconds patience) {
  std::unique_lock lock(mutex_);
  const bool heard = changed_.wait_for(lock, 2 * patience, [this] { return is_complete_ || news_; });
  lock.unlock();
  require_all();
  require(heard, ErrorKind::kComm, "rank 0 does not say within {} s whether all ranks have come", 2 * patience.count());
}

void RankWatch::wait_for_news() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kGrace, [this] { return news_.has_value(); });
}

void RankWatch::require_all() const {
  if (!has_news_) return;
  const std::lock_guard lock(mutex_);
  throw Error(news_->kind, news_->text);
}

void RankWatch::give_up(ErrorKind kind, const std::string& reason) {
  if (!has_news_) send_line(socket_, fail_line(kind, reason));
  wait_for_news();
  const std::lock_guard lock(mutex_);
  if (!news_ || news_->rank == rank_) return;
  leave_launcher();
  throw Error(news_->kind, news_->text);
}

void RankWatch::say(const std::string& line) { send_line(socket_, line); }

void RankWatch::leave() { say("cmd=leave"); }

void RankWatch::leave_launcher() {
  constexpr std::string_view kFinalize = "cmd=finalize\n";
  const int launcher = last_words.launcher.exchange(-1);
  if (launcher < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(launcher, kFinalize.data(), kFinalize.size());
  // It gives up the whole job where its answer finds nobody.
  constexpr int kPatienceMilliseconds = 500;
  pollfd answer{.fd = launcher, .events = POLLIN, .revents = 0};
  ::poll(&answer, 1, kPatienceMilliseconds);
}

void RankWatch::forget_launcher() { last_words.launcher = -1; }

void RankWatch::watch() {
  LineReader lines;
  bool was_heard = false;  // not somebody else, who listens on this port
  while (lines.receive(socket_)) {
    while (const auto line = lines.take()) {
      const Fields fields = parse_line(*line);
      const std::string command = field(fields, "cmd");
      was_heard = was_heard || !command.empty();
      if (command == "bye") return;
      if (command == "stop") {
        hear(parse_news(fields));
        return end_process_soon();
      }
      if (command != "go") continue;
      const std::lock_guard lock(mutex_);
      is_complete_ = true;
      changed_.notify_all();
    }
  }
  if (server_ == Server::kGuard) return;
  {
    const std::lock_guard lock(mutex_);
    if (is_leaving_) return;
  }
  const std::string broken = broken_connection(lines.error());
  const char* const end = was_heard ? "its process ended without a word: killed, or crashed"
                                    : "its process ended before it said a word: killed, or crashed, or another program "
                                      "has its port";
  hear(gone_news(0, broken.empty() ? end : broken));
  end_process_soon();
}

void RankWatch::hear(RankNews news) {
  const std::lock_guard lock(mutex_);
  set_last_words(news);
  news_ = std::move(news);
  has_news_ = true;
  changed_.notify_all();
}

void RankWatch::end_process_soon() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, kGrace, [this] { return is_leaving_; })) return;
  await_and_say_last_words();
}

}  // namespace strake::comm
