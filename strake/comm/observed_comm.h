#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "strake/comm/comm.h"

namespace strake::comm {

// One collective as a rank saw it.
struct CommOperation {
  const char* name;  // as a member of Comm: "all_reduce"
  int64_t bytes;     // of the whole buffer, also where ranks have parts of it
  int num_ranks;     // of the group
  double seconds;    // of this rank, with waiting for the others
};

// `comm`, which outlives it, telling of each operation when it is complete: of those of split groups too, but not of
// what abort() and waiting for shared memory take. `tell` is called by whatever threads call collectives.
std::unique_ptr<Comm> observe(Comm& comm, std::function<void(const CommOperation&)> tell);

}  // namespace strake::comm
