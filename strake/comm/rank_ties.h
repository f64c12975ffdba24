#pragma once

#include <memory>

#include "strake/comm/pmi_server.h"
#include "strake/comm/rank_environment.h"
#include "strake/comm/rank_processes.h"
#include "strake/comm/rank_watch.h"

namespace strake::comm {

// What a rank of MPI keeps alive to hear of the others.
struct RankTies {
  std::unique_ptr<RankRollCall> processes;
  std::unique_ptr<PmiServer> server;  // rank 0 where there is no launcher of MPI's
  std::shared_ptr<RankWatch> watch;
  bool has_launcher = true;  // that ends the others
};

// Before MPI starts. Returns when all ranks of torchrun have come, which then find each other where MPI looks for it
// (PMI_PORT); ranks of a launcher of MPI's meet at the guard that their first one starts. Errors as PmiServer,
// RankWatch and join_rank_guard; kUsage naming STRAKE_START_SECONDS.
RankTies tie_ranks(const RankEnvironment& environment);

}  // namespace strake::comm
