#include "strake/core/memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "strake/core/control_groups.h"

namespace strake {
namespace {

namespace fs = std::filesystem;

// RLIMIT_AS, if there is one.
std::optional<int64_t> address_space() {
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur > rlim_t{INT64_MAX}) return std::nullopt;
  return static_cast<int64_t>(addresses.rlim_cur);
}

// Lowers `limit` to the number in a file; a missing file and "max" say nothing.
void apply_limit(const fs::path& file, MemoryLimit& limit) {
  int64_t bytes = 0;
  if (std::ifstream(file) >> bytes && bytes > 0 && bytes < limit.bytes) limit = {bytes, file.string()};
}

// Of the heap that sbrk extends: as far as huge pages were asked for.
std::atomic<uintptr_t> asked_until{0};

// Not by sbrk(0): UCX, which MPI brings along, replaces it by one that sets the end again, and takes away what malloc
// has added meanwhile. 0 lies below all heaps: the kernel only answers.
uintptr_t end_of_heap() { return static_cast<uintptr_t>(::syscall(SYS_brk, 0)); }

// The linker's: the heap begins behind it. Under `ulimit -s unlimited` what is mapped lies before it.
extern "C" const char end_of_program[] __asm__("end");

}  // namespace

void keep_freed_memory() {
  constexpr int kGibibyte = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, address_space() ? 16 << 20 : kGibibyte);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);  // per-thread arenas are too small for activations, which would be mapped after all
  ::setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 0);
}

void return_freed_memory() {
  malloc_trim(0);
  asked_until.store(0, std::memory_order_relaxed);  // where the heap ended there is nothing now
}

void ask_for_huge_pages(const void* block, size_t bytes) {
  constexpr size_t kLeast = 1 << 20;
  if (bytes < kLeast) return;
  const auto address = reinterpret_cast<uintptr_t>(block);
  uintptr_t begin = address;
  uintptr_t end = begin + bytes;
  const uintptr_t top = end_of_heap();
  const bool is_in_heap = begin >= reinterpret_cast<uintptr_t>(end_of_program) && end <= top;
  if (is_in_heap) {  // which grows in large steps: one request for each
    const uintptr_t until = asked_until.load(std::memory_order_relaxed);
    if (end <= until) return;
    asked_until.store(top, std::memory_order_relaxed);
    begin = std::max(begin, until);
    end = top;
  }
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  begin -= begin % page;
  auto* const from = static_cast<std::byte*>(const_cast<void*>(block)) + static_cast<ptrdiff_t>(begin - address);
  ::madvise(from, end - begin, MADV_HUGEPAGE);  // advice: a refusal is no error
}

MemoryLimit memory_limit(const fs::path& root, const fs::path& membership) {
  MemoryLimit limit{int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE), "the machine's memory"};
  for (const ControlGroup& group : control_groups("memory", root, membership)) {
    apply_limit(group.folder / (group.is_version_2 ? "memory.max" : "memory.limit_in_bytes"), limit);
  }
  const std::optional<int64_t> addresses = address_space();
  if (addresses && *addresses - kAddressesBesideTensors < limit.bytes - kResidentBesideTensors) {
    return {*addresses, "ulimit -v", MemoryLimit::Of::kAddressSpace};
  }
  return limit;
}

}  // namespace strake
