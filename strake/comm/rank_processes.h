#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "strake/comm/rank_environment.h"

namespace strake::comm {

// How to know processes of this host as ranks of the job, before they have said a word: by their environment.
struct RankProcessQuery {
  std::string rank_variable;        // its value is the rank
  std::vector<std::string> shared;  // NAME=value, the same for all ranks
  int parent = 0;                   // 0: any, but of this program
};

struct RankProcess {
  int rank = 0;
  int pid = 0;
  int parent = 0;
  int descriptor = -1;  // a pidfd, readable when the process has ended; whoever looked closes it
};

// Those of ranks not in `known`; nothing where the system has no pidfd_open.
std::vector<RankProcess> find_rank_processes(const RankProcessQuery& query, const std::set<int>& known);

// How long a rank may be without a process after the newest other rank's has come up.
struct RollCallPatience {
  std::chrono::seconds usual{10};  // a busy machine, or a user with two terminals, starts them seconds apart
  // Where a script started all that there are, has no other child that may still become one, and waits for their end.
  // One that started one rank may be that rank's own: it counts if it has no terminal and no script beside it.
  std::chrono::seconds of_launcher{1};
};

// Looks after ranks that are on this host but have not come yet. Not thread-safe.
class RankRollCall {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  // Looks for the first time. A rank without a process counts as gone when none has come up for so long, by `clock`.
  RankRollCall(RankProcessQuery query, RollCallPatience patience, Clock clock = std::chrono::steady_clock::now);
  ~RankRollCall();
  RankRollCall(const RankRollCall&) = delete;
  RankRollCall& operator=(const RankRollCall&) = delete;

  // What became of `rank`, if its process has ended or never was.
  std::optional<std::string> end_of(int rank);

 private:
  void look();

  RankProcessQuery query_;
  RollCallPatience patience_;
  Clock clock_;
  std::chrono::steady_clock::time_point newest_;
  std::vector<RankProcess> processes_;
};

// Where all ranks of a job that has no launcher of MPI's are on this host, as a MASTER_ADDR of 127.0.0.1 says.
std::optional<RankProcessQuery> torchrun_processes(const RankEnvironment& environment);

// Of /proc/PID/stat, behind the name of the program: field `number` as proc(5) counts, from 3; "0" if there is none.
std::string process_stat(int pid, int number);

}  // namespace strake::comm
