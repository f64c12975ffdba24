#include "strake/data/memory_pool.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "strake/data/memory_pool_arrow.h"

namespace strake::data {

void choose_memory_pool() {
  const std::string name = "jemalloc";
  const std::vector<std::string> known = arrow::SupportedMemoryBackendNames();
  if (std::ranges::find(known, name) == known.end()) return;
  ::setenv("ARROW_DEFAULT_MEMORY_POOL", name.c_str(), 0);  // read by Arrow when it first allocates
}

arrow::MemoryPool* bounded_pool() {
  constexpr int64_t kMostBytes = int64_t{8} << 30;
  static arrow::CappedMemoryPool pool(arrow::default_memory_pool(), kMostBytes);
  return &pool;
}

}  // namespace strake::data
