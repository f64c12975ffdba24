#pragma once

#include <memory>

#include "strake/comm/comm.h"
#include "strake/comm/rank_environment.h"

namespace strake::comm {

// Starts MPI for this process and returns the group of all processes of the job. MPI ends when the object is destroyed.
// Under torchrun-style variables rank 0 first serves MPICH's PMI-1 start-up protocol on MASTER_ADDR at
// MASTER_PORT + 1 (the launcher itself listens on MASTER_PORT). Error (kComm) if the launcher and the MPI library
// strake was built with do not fit together. One object per process. A rank that waits longer than `patience` for
// others in a collective ends the job. Fills in what `environment` does not know of this host.
std::unique_ptr<Comm> make_mpi_comm(RankEnvironment& environment, std::chrono::seconds patience = kDefaultPatience);

}  // namespace strake::comm
