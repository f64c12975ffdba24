#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "strake/comm/comm.h"

namespace strake::comm {

// Memory that ranks which are processes of one host have in common.
struct SharedMemory {
  std::shared_ptr<void> data;  // null: there is none
  std::string problem = {};    // why, of any rank
};

// `bytes` zeros, the same for all ranks; null for all of them if one cannot have it. An equal part of it counts as a
// rank's tensor memory. Collective.
SharedMemory share_memory(Comm& comm, size_t bytes);

// False with STRAKE_SHARED_MEMORY=0, and where address space is what limits a rank (ulimit -v): all of the memory would
// count. Error (kUsage) if the variable is neither 0 nor 1.
bool may_share_memory();

// Whether ranks can: they try with a few bytes that only rank 0 knows. False where one may not, or where they are on
// several hosts or in containers that do not see each other. Collective.
bool can_share_memory(Comm& comm);

}  // namespace strake::comm
