#include "strake/comm/pmi_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "strake/core/error.h"

namespace strake::comm {
namespace {

constexpr size_t kMaxLine = 4096;

struct AddressInfo {
  AddressInfo(const std::string& address, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    const int code = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &first);
    require(code == 0, ErrorKind::kComm, "cannot resolve {}: {}", address, ::gai_strerror(code));
  }
  ~AddressInfo() { ::freeaddrinfo(first); }
  AddressInfo(const AddressInfo&) = delete;
  AddressInfo& operator=(const AddressInfo&) = delete;
  addrinfo* first = nullptr;
};

std::map<std::string, std::string> parse_line(const std::string& line) {
  std::map<std::string, std::string> fields;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos) fields[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return fields;
}

}  // namespace

bool send_line(int socket, const std::string& line) {
  const std::string text = line + "\n";
  return ::send(socket, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

class PmiServer::State {
 public:
  State(const std::string& address, int port, int num_ranks) : num_ranks_(num_ranks) {
    const AddressInfo info(address, port);
    listener_ = ::socket(info.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool listening =
        ::bind(listener_, info.first->ai_addr, info.first->ai_addrlen) == 0 && ::listen(listener_, num_ranks + 8) == 0;
    if (!listening) {
      const int reason = errno;
      ::close(listener_);
      fail(ErrorKind::kComm, "cannot listen on {}:{}: {}", address, port, std::strerror(reason));
    }
    sockaddr_in bound{};
    socklen_t length = sizeof(bound);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &length);
    port_ = ntohs(bound.sin_port);
    acceptor_ = std::thread([this] { accept_ranks(); });
  }

  ~State() {
    closing_ = true;
    acceptor_.join();
    close_all();
    for (std::thread& thread : connections_) thread.join();
    for (const int socket : sockets_) ::close(socket);
    ::close(listener_);
  }

  int port() const { return port_; }

 private:
  void accept_ranks() {
    constexpr int kPollMilliseconds = 50;
    while (!closing_) {
      pollfd waiting{listener_, POLLIN, 0};
      if (::poll(&waiting, 1, kPollMilliseconds) <= 0) continue;
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) continue;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      if (rank_died_) ::shutdown(socket, SHUT_RDWR);
      connections_.emplace_back([this, socket] { serve(socket); });
    }
  }

  void serve(int socket) {
    std::string pending;
    std::string rank;  // that this is the connection of
    bool is_rank = false;
    bool finalized = false;
    bool open = true;
    char buffer[kMaxLine];
    while (open && pending.size() < kMaxLine) {
      const ssize_t got = ::recv(socket, buffer, sizeof(buffer), 0);
      if (got <= 0) break;
      pending.append(buffer, static_cast<size_t>(got));
      for (size_t end = pending.find('\n'); open && end != std::string::npos; end = pending.find('\n')) {
        const auto fields = parse_line(pending.substr(0, end));
        pending.erase(0, end + 1);
        is_rank = true;
        const std::string command = fields.contains("cmd") ? fields.at("cmd") : "";
        if (command == "initack") rank = fields.contains("pmiid") ? fields.at("pmiid") : "";
        if (command == "watch") rank = fields.contains("rank") ? fields.at("rank") : "";
        finalized = finalized || command == "finalize" || command == "leave";
        open = command != "abort" && answer(socket, command, fields);
      }
    }
    if (is_rank && !finalized) stop_all(rank);  // a rank died: its peers must not wait for it
  }

  bool answer(int socket, const std::string& command, const std::map<std::string, std::string>& fields) {
    const auto field = [&](const char* name) { return fields.contains(name) ? fields.at(name) : std::string(); };
    if (command == "initack") {
      return send_line(socket, "cmd=initack rc=0") && send_line(socket, fmt::format("cmd=set size={}", num_ranks_)) &&
             send_line(socket, "cmd=set rank=" + field("pmiid")) && send_line(socket, "cmd=set debug=0");
    }
    if (command == "init") return send_line(socket, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    if (command == "get_maxes")
      return send_line(socket, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0");
    if (command == "get_appnum") return send_line(socket, "cmd=appnum appnum=0 rc=0");
    if (command == "get_my_kvsname") return send_line(socket, "cmd=my_kvsname kvsname=strake rc=0");
    if (command == "get_universe_size") {
      return send_line(socket, fmt::format("cmd=universe_size size={} rc=0", num_ranks_));
    }
    if (command == "put") {
      const std::lock_guard lock(mutex_);
      values_[field("key")] = field("value");
      return send_line(socket, "cmd=put_result rc=0 msg=success");
    }
    if (command == "get") {
      const std::lock_guard lock(mutex_);
      const auto found = values_.find(field("key"));
      return send_line(socket, found == values_.end() ? "cmd=get_result rc=-1 msg=key_not_found"
                                                      : "cmd=get_result rc=0 msg=success value=" + found->second);
    }
    if (command == "barrier_in") return enter_barrier(socket);
    if (command == "watch") {
      const std::lock_guard lock(mutex_);
      watchers_.insert(socket);
      return true;
    }
    if (command == "leave") {
      const std::lock_guard lock(mutex_);
      watchers_.erase(socket);
      return true;
    }
    if (command == "finalize") return send_line(socket, "cmd=finalize_ack rc=0");
    return send_line(socket, fmt::format("cmd={}_result rc=-1 msg=unknown", command));
  }

  bool enter_barrier(int socket) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(socket);
    if (static_cast<int>(waiting_.size()) < num_ranks_) return true;
    for (const int rank : waiting_) send_line(rank, "cmd=barrier_out rc=0");
    waiting_.clear();
    return true;
  }

  void stop_all(const std::string& rank) {
    {
      const std::lock_guard lock(mutex_);
      if (!rank_died_ && !closing_) {
        for (const int watcher : watchers_) send_line(watcher, "cmd=stop rank=" + rank);
      }
    }
    close_all();
  }

  void close_all() {
    const std::lock_guard lock(mutex_);
    rank_died_ = true;
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  }

  int num_ranks_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> closing_{false};
  std::thread acceptor_;
  std::mutex mutex_;
  bool rank_died_ = false;  // connections that come later are closed too
  std::vector<std::thread> connections_;
  std::vector<int> sockets_;
  std::vector<int> waiting_;
  std::set<int> watchers_;
  std::map<std::string, std::string> values_;
};

PmiServer::PmiServer(const std::string& address, int port, int num_ranks)
    : state_(std::make_unique<State>(address, port, num_ranks)) {}
PmiServer::~PmiServer() = default;
int PmiServer::port() const { return state_->port(); }

int connect_to_pmi_server(const std::string& address, int port) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (std::chrono::steady_clock::now() < deadline) {
    const AddressInfo info(address, port);
    const int socket = ::socket(info.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket, info.first->ai_addr, info.first->ai_addrlen) == 0) return socket;
    ::close(socket);
    std::this_thread::sleep_for(50ms);
  }
  fail(ErrorKind::kComm, "rank 0 does not answer on {}:{}", address, port);
}

}  // namespace strake::comm
