#pragma once

#include <arrow/array/array_base.h>

#include <cstdint>
#include <vector>

namespace strake::data {

// Adds what each row of a column takes in memory. `bytes`: of every row.
void add_bytes(const arrow::Array& array, std::vector<int64_t>& bytes);

}  // namespace strake::data
