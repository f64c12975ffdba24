#pragma once

#include <arrow/array.h>
#include <arrow/record_batch.h>

#include <memory>
#include <span>
#include <string>

#include "strake/data/table_writer.h"

namespace strake::data {

// Values as an Arrow array: strings, numbers, or lists of numbers, strings or spans.
std::shared_ptr<arrow::Array> to_arrow(const ExtraColumn& column, const std::string& file);

// The table's rows with columns added. `output`: for messages. Errors as of TableWriter::append.
std::shared_ptr<arrow::RecordBatch> with_columns(const Table& table, std::span<const ExtraColumn> extra,
                                                 const std::string& output);

}  // namespace strake::data
