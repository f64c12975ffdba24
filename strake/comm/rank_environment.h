#pragma once

#include <functional>
#include <optional>
#include <string>

#include "strake/core/threads.h"

namespace strake::comm {

// The place of this process in a job, as its launcher's environment variables tell.
struct RankEnvironment {
  std::string launcher;  // "Open MPI", "MPICH", "Slurm" or "torchrun"
  int rank = 0;
  int size = 1;
  int local_size = 1;          // processes on this host
  int local_rank = 0;          // among them
  int num_cores = 1;           // of this host that are this process's; find_host() tells
  bool knows_host = true;      // false: the launcher told no local_size, which stands for one host's
  std::string master_address;  // torchrun only
  int master_port = 0;         // torchrun only

  int num_threads() const { return wanted_threads().value_or(num_cores); }
};

// Looks for, in this order: OMPI_COMM_WORLD_RANK/SIZE (Open MPI), PMI_RANK/PMI_SIZE (MPICH), SLURM_PROCID/SLURM_NTASKS
// within a job step, RANK/WORLD_SIZE/MASTER_ADDR/MASTER_PORT (torchrun and alike). Of two launchers, one that started
// several ranks counts; torchrun's own where each task of srun or mpirun started one, or srun starts no MPI. Nothing
// when this is a process of its own. Error (kUsage) naming the variable for values that make no sense, are not all
// there or contradict each other. `lookup` is std::getenv but in tests.
std::optional<RankEnvironment> detect_rank_environment(const std::function<const char*(const char*)>& lookup);
std::optional<RankEnvironment> detect_rank_environment();

}  // namespace strake::comm
