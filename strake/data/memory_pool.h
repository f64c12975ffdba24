#pragma once

namespace strake::data {

// For programs that stream tables: has Arrow allocate by jemalloc, if it was built with it, which keeps less beside
// what is in use than Arrow's first choice. ARROW_DEFAULT_MEMORY_POOL goes before. To be called before the first table
// and before there are threads.
void choose_memory_pool();

}  // namespace strake::data
