#include "strake/core/memory.h"

#include <malloc.h>

#include <climits>

namespace strake {

void keep_freed_memory() {
  constexpr int kGibibyte = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kGibibyte);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);  // per-thread arenas are too small for activations, which would be mapped after all
}

}  // namespace strake
