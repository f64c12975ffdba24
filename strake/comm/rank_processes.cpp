#include "strake/comm/rank_processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "strake/comm/rank_lines.h"

namespace strake::comm {
namespace {

namespace fs = std::filesystem;

std::string read_process_file(int pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<int> all_processes() {
  std::vector<int> pids;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc", none)) {
    const int pid = parse_number(entry.path().filename());
    if (pid > 0) pids.push_back(pid);
  }
  return pids;
}

int parent_of(int pid) {
  constexpr int kParent = 4;
  return parse_number(process_stat(pid, kParent));
}

bool is_this_program(int pid) {
  std::error_code none;
  const fs::path own = fs::read_symlink("/proc/self/exe", none);
  return !own.empty() && fs::read_symlink(fmt::format("/proc/{}/exe", pid), none) == own;
}

// Of which nothing but the exit code is left.
bool has_ended(int pid) {
  constexpr int kState = 3;
  const std::string state = process_stat(pid, kState);
  return state == "Z" || state == "X" || state == "0";
}

// For children to end, as a shell's `wait` and Python's Popen.wait() do; "0" where the system does not tell.
bool is_waiting(int pid) {
  const std::string function = read_process_file(pid, "wchan");
  return function.starts_with("do_wait") || function.starts_with("sigsuspend");
}

// Not a script: a shell, or what was started from one, on the terminal of somebody who may have another.
bool is_of_a_person(int pid) {
  constexpr int kSession = 6, kTerminal = 7;
  return process_stat(pid, kTerminal) != "0" || process_stat(pid, kSession) == std::to_string(pid);
}

// Of a script that started both and more: as a wrapper of each rank has one of the other ranks' beside it.
bool has_sibling(int pid) {
  constexpr int kGroup = 5;
  const int parent = parent_of(pid);
  const std::string group = process_stat(pid, kGroup);
  return std::ranges::any_of(all_processes(), [&](int other) {
    return other != pid && parent_of(other) == parent && process_stat(other, kGroup) == group && !has_ended(other);
  });
}

// No more are to be expected: one process started these, has no child but them and waits for their end.
bool are_all_of_launcher(const std::vector<RankProcess>& ranks) {
  if (ranks.empty()) return false;
  const int launcher = ranks.front().parent;
  if (launcher <= 1 || !is_waiting(launcher)) return false;
  if (ranks.size() == 1 && (is_of_a_person(launcher) || has_sibling(launcher))) return false;
  const auto is_elsewhere = [&](const RankProcess& rank) { return rank.parent != launcher; };
  const auto may_become_one = [&](int pid) {
    return parent_of(pid) == launcher && !has_ended(pid) &&
           std::ranges::find(ranks, pid, &RankProcess::pid) == ranks.end();
  };
  return std::ranges::none_of(ranks, is_elsewhere) && std::ranges::none_of(all_processes(), may_become_one);
}

// -1: no rank.
int rank_of(int pid, const RankProcessQuery& query) {
  if (query.parent != 0 ? parent_of(pid) != query.parent : !is_this_program(pid)) return -1;
  const std::string variables = '\0' + read_process_file(pid, "environ");
  const auto has = [&](const std::string& variable) {
    return variables.find('\0' + variable + '\0') != std::string::npos;
  };
  const std::string name = '\0' + query.rank_variable + '=';
  const size_t found = variables.find(name);
  if (found == std::string::npos || !std::ranges::all_of(query.shared, has)) return -1;
  return parse_number(variables.c_str() + found + name.size());
}

}  // namespace

std::string process_stat(int pid, int number) {
  const std::string stat = read_process_file(pid, "stat");
  std::istringstream words(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string word = "0";
  constexpr int kFirst = 3;
  for (int place = kFirst; place <= number; ++place) words >> word;
  return word;
}

std::vector<RankProcess> find_rank_processes(const RankProcessQuery& query, const std::set<int>& known) {
  std::vector<RankProcess> processes;
  for (const int pid : all_processes()) {
    const int rank = rank_of(pid, query);
    if (rank < 0 || known.contains(rank)) continue;
    const auto descriptor = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    if (descriptor >= 0) {
      processes.push_back({.rank = rank, .pid = pid, .parent = parent_of(pid), .descriptor = descriptor});
    }
  }
  return processes;
}

RankRollCall::RankRollCall(RankProcessQuery query, RollCallPatience patience, Clock clock)
    : query_(std::move(query)), patience_(patience), clock_(std::move(clock)), newest_(clock_()) {
  look();
}

RankRollCall::~RankRollCall() {
  for (const RankProcess& process : processes_) ::close(process.descriptor);
}

void RankRollCall::look() {
  std::set<int> known;
  for (const RankProcess& process : processes_) known.insert(process.rank);
  const std::vector<RankProcess> more = find_rank_processes(query_, known);
  if (!more.empty()) newest_ = clock_();
  processes_.insert(processes_.end(), more.begin(), more.end());
}

std::optional<std::string> RankRollCall::end_of(int rank) {
  auto found = std::ranges::find(processes_, rank, &RankProcess::rank);
  if (found == processes_.end()) {
    look();
    found = std::ranges::find(processes_, rank, &RankProcess::rank);
  }
  if (found == processes_.end()) {
    const auto since_newest = clock_() - newest_;
    if (since_newest < patience_.of_launcher) return std::nullopt;
    const auto patience = are_all_of_launcher(processes_) ? patience_.of_launcher : patience_.usual;
    if (since_newest < patience) return std::nullopt;
    return fmt::format(
        "it has no process on this host, {} s after the newest other rank's: killed, or crashed. A launcher that needs "
        "longer sets STRAKE_START_SECONDS",
        patience.count());
  }
  pollfd ended{found->descriptor, POLLIN, 0};
  if (::poll(&ended, 1, 0) != 1) return std::nullopt;
  return fmt::format("its process {} ended at its start: killed, or crashed", found->pid);
}

std::optional<RankProcessQuery> torchrun_processes(const RankEnvironment& environment) {
  const std::string& master = environment.master_address;
  if (master != "localhost" && !master.starts_with("127.")) return std::nullopt;
  return RankProcessQuery{.rank_variable = "RANK",
                          .shared = {"MASTER_ADDR=" + master, fmt::format("MASTER_PORT={}", environment.master_port),
                                     fmt::format("WORLD_SIZE={}", environment.size)}};
}

}  // namespace strake::comm
