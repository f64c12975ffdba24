#include "strake/core/memory.h"

#include <malloc.h>
#include <unistd.h>

#include <climits>
#include <fstream>

namespace strake {
namespace {

namespace fs = std::filesystem;

// Lowers `limit` to the number in a file; a missing file and "max" say nothing.
void apply_limit(const fs::path& file, MemoryLimit& limit) {
  int64_t bytes = 0;
  if (std::ifstream(file) >> bytes && bytes > 0 && bytes < limit.bytes) limit = {bytes, file.string()};
}

// Limits of a group and of all that it lies in.
void apply_group(const fs::path& root, const fs::path& group, const char* name, MemoryLimit& limit) {
  apply_limit(root / name, limit);
  fs::path folder = root;
  for (const fs::path& part : group.relative_path()) {
    if (part == "..") return;
    folder /= part;
    apply_limit(folder / name, limit);
  }
}

}  // namespace

void keep_freed_memory() {
  constexpr int kGibibyte = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kGibibyte);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);  // per-thread arenas are too small for activations, which would be mapped after all
}

MemoryLimit memory_limit(const fs::path& control_groups, const fs::path& membership) {
  MemoryLimit limit{int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE), "the machine's memory"};
  // Lines "hierarchy:controllers:path"; version 2 is "0::path".
  std::ifstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group(line.substr(second + 1));
    if (controllers == ",,") apply_group(control_groups, group, "memory.max", limit);
    if (controllers.find(",memory,") != std::string::npos) {
      apply_group(control_groups / "memory", group, "memory.limit_in_bytes", limit);
    }
  }
  return limit;
}

}  // namespace strake
