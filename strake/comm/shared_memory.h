#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "strake/comm/comm.h"

namespace strake::comm {

// Memory that ranks which are processes of one host have in common.

// The part of it that is a rank's: counts as its tensor memory, and is taken from the host's by it.
struct OwnBytes {
  size_t begin = 0;
  size_t count = 0;
};

// `bytes` zeros, the same for all ranks. Error (kIo), the same on all ranks, if one cannot have it. Collective.
std::shared_ptr<void> share_memory(Comm& comm, size_t bytes, OwnBytes own);

// Why this process must not: STRAKE_SHARED_MEMORY=0, or that address space is what limits it (ulimit -v), of which all
// of the memory would count. Error (kUsage) if the variable is neither 0 nor 1.
std::optional<std::string> reason_not_to_share_memory();

// Ranks try with a few bytes that only rank 0 knows. None if it works; else why not, the same on all ranks: one must
// not (its reason_not_to_share_memory()), or they are on several hosts or in containers that do not see each other.
// Collective.
std::optional<std::string> try_to_share_memory(Comm& comm, const std::optional<std::string>& own_reason_not_to);

}  // namespace strake::comm
