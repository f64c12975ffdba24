#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace strake {

// Tells malloc to keep freed memory for the next request instead of returning it to the system. Batches differ in size,
// so that otherwise every step maps, clears and unmaps its activations again (a tenth of a training step). For
// jobs that compute; call it before they start.
void keep_freed_memory();

// The most memory that this process may ever have.
struct MemoryLimit {
  int64_t bytes = 0;
  std::string source;  // "the machine's memory", or the file of the control group that sets it
};

// The machine's memory, or less if a control group (version 2 or 1) of the process, as containers and batch systems
// have, allows less. `control_groups` and `membership` are for tests.
MemoryLimit memory_limit(const std::filesystem::path& control_groups = "/sys/fs/cgroup",
                         const std::filesystem::path& membership = "/proc/self/cgroup");

}  // namespace strake
