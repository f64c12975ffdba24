#pragma once

#include <arrow/array.h>

#include <memory>
#include <string>

#include "strake/data/table_writer.h"

namespace strake::data {

// Values as an Arrow array: string, float, int32, int64, list<float> or list<int32>.
std::shared_ptr<arrow::Array> to_arrow(const ExtraColumn& column, const std::string& file);

}  // namespace strake::data
