#pragma once

#include <arrow/memory_pool.h>

namespace strake::data {

// Arrow's own pool with a limit, for what is decoded: forged sizes ask for more than there is. All arrays free their
// memory through it, so it lives as long as the program.
arrow::MemoryPool* bounded_pool();

}  // namespace strake::data
