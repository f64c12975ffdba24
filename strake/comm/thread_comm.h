#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "strake/comm/comm.h"

namespace strake::comm {

// Runs body(comm) as `ranks` threads of this process, each with its rank for logging and `threads_per_rank` compute
// threads. Collectives work directly on the other ranks' buffers: a reduce_scatter reads each byte once. If a rank
// throws, the others' collectives throw too; the first rank's error is logged with its rank and rethrown here. A rank
// that waits longer than `patience` for others throws an error that names them. Where some rank does not come back
// within a second of the first error, whatever it is doing, this process is ended, with the error on stderr and its
// exit code.
void run_ranks(int ranks, int threads_per_rank, const std::function<void(Comm&)>& body,
               std::chrono::seconds patience = kDefaultPatience);

}  // namespace strake::comm
