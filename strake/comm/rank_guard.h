#pragma once

#include <optional>

#include "strake/comm/rank_environment.h"

namespace strake::comm {

// MPICH's mpiexec kills all ranks as soon as one has died, and its report names a process but no rank; the survivors
// have no time to tell. A guard does: one process for the ranks of a host, split off by the first of them, that mpiexec
// does not know. It says on stderr which rank was the first to end before it was done, or before it came, and tells
// those that watch (rank_watch.h). It ends when the ranks have.
//
// Returns the socket for this rank's RankWatch, which the caller closes; nothing if the ranks were not started by
// MPICH's mpiexec on Linux, or have no guard for another reason. To be called before this process has threads.
std::optional<int> join_rank_guard(const RankEnvironment& environment);

}  // namespace strake::comm
