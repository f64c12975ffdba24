#include "strake/comm/rank_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <set>
#include <string>

#include "strake/core/error.h"

namespace strake::comm::rank_processes_test {
namespace {

// `sleep` with some variables, a child of this process.
class Sleeper {
 public:
  explicit Sleeper(const std::string& rank) {
    std::string name = "sleep";
    std::string time = "60";
    std::string own = "STRAKE_TEST_RANK=" + rank;
    std::string shared = "STRAKE_TEST_JOB=7";
    char* const arguments[] = {name.data(), time.data(), nullptr};
    char* const variables[] = {own.data(), shared.data(), nullptr};
    require(::posix_spawnp(&pid_, "sleep", nullptr, nullptr, arguments, variables) == 0, ErrorKind::kInternal,
            "sleep does not start");
  }
  ~Sleeper() { end(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  void end() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

RankProcessQuery of_job(const std::string& job) {
  return {.rank_variable = "STRAKE_TEST_RANK", .shared = {"STRAKE_TEST_JOB=" + job}, .parent = ::getpid()};
}

// Those that are not `known`, as soon as there are any: a process must first become the program it was told to be.
std::vector<RankProcess> wait_for_processes(const std::set<int>& known) {
  std::vector<RankProcess> found;
  while (found.empty()) found = find_rank_processes(of_job("7"), known);
  for (const RankProcess& process : found) ::close(process.descriptor);
  return found;
}

TEST(RankProcesses, AreKnownByTheirEnvironment) {
  const Sleeper one("1");
  const Sleeper ten("10");
  const std::vector<RankProcess> found = wait_for_processes({10});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].pid, one.pid());
  EXPECT_TRUE(find_rank_processes(of_job("70"), {}).empty());
}

TEST(RankProcesses, ARollCallNoticesAnEnd) {
  Sleeper one("1");
  RankRollCall calls(of_job("7"), RollCallPatience{});
  wait_for_processes({});
  EXPECT_EQ(calls.end_of(1), std::nullopt);
  EXPECT_EQ(calls.end_of(2), std::nullopt);
  const pid_t pid = one.pid();
  one.end();
  EXPECT_EQ(calls.end_of(1), fmt::format("its process {} ended at its start: killed, or crashed", pid));
  EXPECT_EQ(calls.end_of(2), std::nullopt);
}

TEST(RankProcesses, ARollCallWaitsForProcessesThatComeUpOneByOne) {
  std::chrono::steady_clock::time_point now;
  RankRollCall calls(of_job("7"), RollCallPatience{}, [&] { return now; });
  now += std::chrono::seconds(8);
  const Sleeper one("1");
  wait_for_processes({});
  EXPECT_EQ(calls.end_of(2), std::nullopt);  // sees the process of rank 1
  now += std::chrono::seconds(9);
  EXPECT_EQ(calls.end_of(2), std::nullopt);
  now += std::chrono::seconds(1);
  EXPECT_TRUE(calls.end_of(2).has_value());
  EXPECT_EQ(calls.end_of(1), std::nullopt);
}

// A shell that starts the processes of the first ranks and goes on with `rest`.
class Launcher {
 public:
  explicit Launcher(const std::string& rest, size_t ranks = 2, pid_t group = 0) : ranks_(ranks) {
    std::string shell = "sh", option = "-c", script;
    for (size_t rank = 0; rank < ranks; ++rank) script += fmt::format("STRAKE_TEST_RANK={} sleep 60 & ", rank);
    script += rest;
    std::string shared = "STRAKE_TEST_JOB=8", path = "PATH=/usr/bin:/bin";
    char* const arguments[] = {shell.data(), option.data(), script.data(), nullptr};
    char* const variables[] = {shared.data(), path.data(), nullptr};
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    ::posix_spawnattr_setpgroup(&attributes, group);
    const int error = ::posix_spawnp(&pid_, "sh", nullptr, &attributes, arguments, variables);
    ::posix_spawnattr_destroy(&attributes);
    require(error == 0, ErrorKind::kInternal, "sh does not start");
  }
  ~Launcher() {
    ::kill(pid_, SIGKILL);  // which is of another's group, if it was told one
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  RankProcessQuery query() const {
    return {.rank_variable = "STRAKE_TEST_RANK", .shared = {"STRAKE_TEST_JOB=8"}, .parent = pid_};
  }
  pid_t pid() const { return pid_; }

  // Until the ranks are there and the shell is in one of these of the kernel's; false where the system does not tell.
  bool wait_until_in(const std::vector<std::string>& functions) const {
    constexpr int kTries = 500;
    for (int i = 0; i < kTries; ++i) {
      std::string in;
      std::getline(std::ifstream("/proc/" + std::to_string(pid_) + "/wchan") >> std::ws, in);
      const auto is_in = [&](const std::string& function) { return in.starts_with(function); };
      if (std::ranges::any_of(functions, is_in) && count() == ranks_) return true;
      ::usleep(10'000);
    }
    return false;
  }

 private:
  size_t count() const {
    const std::vector<RankProcess> found = find_rank_processes(query(), {});
    for (const RankProcess& process : found) ::close(process.descriptor);
    return found.size();
  }

  size_t ranks_;
  pid_t pid_ = 0;
};

bool misses_rank_2(const Launcher& launcher) {
  std::chrono::steady_clock::time_point now;
  RankRollCall calls(launcher.query(), RollCallPatience{}, [&] { return now; });
  EXPECT_EQ(calls.end_of(2), std::nullopt);
  now += std::chrono::seconds(2);
  EXPECT_EQ(calls.end_of(0), std::nullopt);
  return calls.end_of(2).has_value();
}

const std::vector<std::string> kWait{"do_wait", "sigsuspend"};  // of bash and of dash

TEST(RankProcesses, ARollCallExpectsNoMoreFromALauncherThatWaits) {
  const Launcher waiting("wait");
  if (!waiting.wait_until_in(kWait)) GTEST_SKIP() << "skipped: this system does not tell what a process waits for";
  EXPECT_TRUE(misses_rank_2(waiting));
  const Launcher busy("exec sleep 60");
  ASSERT_TRUE(busy.wait_until_in({"hrtimer_nanosleep"}));
  EXPECT_FALSE(misses_rank_2(busy));
  const Launcher with_another("sleep 60 & wait");  // it may become a rank
  ASSERT_TRUE(with_another.wait_until_in(kWait));
  EXPECT_FALSE(misses_rank_2(with_another));
}

TEST(RankProcesses, AScriptOfOneRankMayBeOneOfSeveral) {
  constexpr int kTerminal = 7;
  if (process_stat(::getpid(), kTerminal) != "0") GTEST_SKIP() << "skipped: scripts of a terminal count as a person's";
  const Launcher alone("wait", 1);
  if (!alone.wait_until_in(kWait)) GTEST_SKIP() << "skipped: this system does not tell what a process waits for";
  EXPECT_TRUE(misses_rank_2(alone));
  const Launcher other("exec sleep 60", 0, alone.pid());  // in one group, as scripts that one script has started
  EXPECT_FALSE(misses_rank_2(alone));
}

TEST(RankProcesses, OnlyALoopbackMasterHasAllRanksOnThisHost) {
  RankEnvironment environment{.launcher = "torchrun", .rank = 0, .size = 2, .master_address = "127.0.0.1"};
  environment.master_port = 29500;
  ASSERT_TRUE(torchrun_processes(environment).has_value());
  EXPECT_EQ(torchrun_processes(environment)->shared[1], "MASTER_PORT=29500");
  environment.master_address = "10.0.0.1";
  EXPECT_FALSE(torchrun_processes(environment).has_value());
}

}  // namespace
}  // namespace strake::comm::rank_processes_test
