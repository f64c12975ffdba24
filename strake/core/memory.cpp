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
#include <sstream>

#include "strake/core/control_groups.h"

namespace strake {
namespace {

namespace fs = std::filesystem;

// The lower of RLIMIT_AS and RLIMIT_DATA, which limits what a process maps for itself alone; if there is one.
std::optional<MemoryLimit> address_space() {
  std::optional<MemoryLimit> lowest;
  const auto apply = [&](int resource, const char* source) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur > rlim_t{INT64_MAX}) return;
    const auto bytes = static_cast<int64_t>(limit.rlim_cur);
    if (!lowest || bytes < lowest->bytes) lowest = {bytes, source, MemoryLimit::Of::kAddressSpace};
  };
  apply(RLIMIT_AS, "ulimit -v");
  apply(RLIMIT_DATA, "ulimit -d");
  return lowest;
}

// Lowers `limit` to the number in a file; a missing file and "max" say nothing.
void apply_limit(const fs::path& file, MemoryLimit& limit) {
  int64_t bytes = 0;
  if (std::ifstream(file) >> bytes && bytes > 0 && bytes < limit.bytes) limit = {bytes, file.string()};
}

// Of the machine's memory what the administrator has set aside as huge pages, which nobody gets without asking for them
// (hugetlbfs). `meminfo`: lines "name: number kB", of pages without the unit. Source: proc_meminfo(5).
int64_t reserved_huge_pages(const fs::path& meminfo) {
  constexpr int64_t kKibibyte = 1024;
  int64_t pages = 0;
  int64_t page_bytes = 0;
  int64_t of_all_sizes = 0;
  std::ifstream lines(meminfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t number = 0;
    if (!(words >> name >> number)) continue;
    if (name == "HugePages_Total:") pages = number;
    if (name == "Hugepagesize:") page_bytes = number * kKibibyte;
    if (name == "Hugetlb:") of_all_sizes = number * kKibibyte;  // not of all kernels
  }
  return std::max(of_all_sizes, pages * page_bytes);
}

MemoryLimit machine_memory(const fs::path& meminfo) {
  const int64_t bytes = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const int64_t reserved = reserved_huge_pages(meminfo);
  if (reserved <= 0 || reserved >= bytes) return {bytes, "the machine's memory"};
  return {bytes - reserved, "the machine's memory without reserved huge pages"};
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

std::vector<MemoryLimit> memory_limits(const fs::path& root, const fs::path& membership, const fs::path& meminfo) {
  MemoryLimit limit = machine_memory(meminfo);
  for (const ControlGroup& group : control_groups("memory", root, membership)) {
    apply_limit(group.folder / (group.is_version_2 ? "memory.max" : "memory.limit_in_bytes"), limit);
    if (group.is_version_2) apply_limit(group.folder / "memory.high", limit);  // above it, nothing goes on
  }
  std::vector<MemoryLimit> limits{limit};
  if (const auto addresses = address_space()) limits.push_back(*addresses);
  return limits;
}

MemoryLimit memory_limit(const fs::path& root, const fs::path& membership, const fs::path& meminfo) {
  const std::vector<MemoryLimit> limits = memory_limits(root, membership, meminfo);
  const auto left = [](const MemoryLimit& limit) {
    return limit.bytes -
           (limit.of == MemoryLimit::Of::kAddressSpace ? kAddressesBesideTensors : kResidentBesideTensors);
  };
  return *std::ranges::min_element(limits, {}, left);
}

}  // namespace strake
