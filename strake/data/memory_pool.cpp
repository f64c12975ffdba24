#include "strake/data/memory_pool.h"

#include <arrow/memory_pool.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace strake::data {

void choose_memory_pool() {
  const std::string name = "jemalloc";
  const std::vector<std::string> known = arrow::SupportedMemoryBackendNames();
  if (std::ranges::find(known, name) == known.end()) return;
  ::setenv("ARROW_DEFAULT_MEMORY_POOL", name.c_str(), 0);  // read by Arrow when it first allocates
}

}  // namespace strake::data
