#pragma once

#include <memory>

#include "strake/comm/comm.h"
#include "strake/comm/nccl_table.h"
#include "strake/kernels/cuda/table.h"

namespace strake::comm {

// What a rank's NcclComm works with. All of it outlives the group.
struct NcclSettings {
  Comm& host;  // the same ranks, threads or processes: brings them together and takes tensors in host memory
  const NcclTable& nccl;
  const kernels::cuda::CudaTable& cuda;
  at::Device device;  // this rank's alone
};

// The ranks of `host`, each with a GPU of its own. Collectives on tensors of that GPU go through NCCL, on a stream of
// their own that waits for what the default stream has been given; the caller returns when they are complete. Sums keep
// the promise of Comm, rank by rank from 0 upwards: pieces are exchanged as they are and added by the rank that keeps
// the sum, in windows, which moves as many bytes as ncclReduceScatter does. Everything else, with tensors in host
// memory too, is the host group's.
//
// A rank that waits for NCCL hears of others that give up by Comm::check_others of the host group, and of NCCL's own
// failures; it cannot while NCCL itself is waiting for others to start, or to end: a group is destroyed when all ranks
// are known to be well, or by an exception, which leaves what is left of it to the end of a process. Collective.
std::unique_ptr<Comm> make_nccl_comm(const NcclSettings& settings);

}  // namespace strake::comm
