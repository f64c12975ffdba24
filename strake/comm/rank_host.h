#pragma once

#include <vector>

#include "strake/comm/comm.h"
#include "strake/comm/rank_environment.h"
#include "strake/core/threads.h"

namespace strake::comm {

// What a process may use of its host's cores.
struct ProcessCores {
  std::vector<int> numbers = cores_of_process();
  int available = available_cores();
};

// Fills in of `environment` what ranks that are processes know only together: who is on this host, by its name, where
// the launcher did not tell, and the cores that are this rank's. Launchers may let all ranks of a host use all of its
// cores or bind each of them to its own. Collective.
void find_host(Comm& comm, RankEnvironment& environment, const ProcessCores& cores = {});

}  // namespace strake::comm
