#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace strake {

// Tells malloc to keep freed memory for the next request instead of returning it to the system. Batches differ in size,
// so that otherwise every step maps, clears and unmaps its activations again (a tenth of a training step). For
// jobs that compute; call it before they start. Also keeps Arrow from reserving a gibibyte of address space for an
// allocator of its own, which would not fit beside the model under `ulimit -v`; with that limit, large blocks are given
// back after all, as holes in the heap count.
void keep_freed_memory();

// Gives all freed memory back now: what the next phase of a job needs in other sizes would come on top of it.
void return_freed_memory();

// Asks the system for huge pages behind a block that malloc has just given out, if it is large, and behind the rest of
// the heap: in pages of 4 KiB, a twentieth of a training step goes into page faults and address translation. Where the
// system has none to give, nothing changes. Thread-safe.
void ask_for_huge_pages(const void* block, size_t bytes);

// What a training process takes beside its tensors, measured with one rank: programs, libraries, kernels' workspaces
// and what malloc keeps. Memory that is there, and addresses, which libraries have that are never touched.
inline constexpr int64_t kResidentBesideTensors = int64_t{208} << 20;
inline constexpr int64_t kAddressesBesideTensors = int64_t{800} << 20;

// The most memory that this process may ever have.
struct MemoryLimit {
  enum class Of {
    kMachine,       // what processes have in memory, all of them together
    kAddressSpace,  // of each process
    kGpu            // of each rank, on a GPU of its own
  };
  int64_t bytes = 0;
  std::string source;  // "the machine's memory", the file of the control group that sets it, "ulimit -v", "ulimit -d"
  Of of = Of::kMachine;
};

// The machine's memory but for huge pages that are reserved, or less if a control group (version 2 or 1) of the
// process, as containers and batch systems have, allows less; and, where there is one, the lower limit of address space
// (RLIMIT_AS) and data (RLIMIT_DATA), which each process has. The arguments are for tests.
std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root = "/sys/fs/cgroup",
                                       const std::filesystem::path& membership = "/proc/self/cgroup",
                                       const std::filesystem::path& meminfo = "/proc/meminfo");
// The one that leaves less for the tensors of a lone process.
MemoryLimit memory_limit(const std::filesystem::path& root = "/sys/fs/cgroup",
                         const std::filesystem::path& membership = "/proc/self/cgroup",
                         const std::filesystem::path& meminfo = "/proc/meminfo");

}  // namespace strake
