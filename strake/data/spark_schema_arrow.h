#pragma once

#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>

#include <memory>

namespace strake::data {

// The metadata of a file with these fields, made from that of a table from which they were taken and to which some were
// added. Spark keeps its own schema there and believes it instead of the file's: a column that it does not name is not
// there for Spark. Fields that Spark's schema has stay as they are in it. Null in, or nothing of Spark's: as it was.
std::shared_ptr<const arrow::KeyValueMetadata> with_spark_schema_of(
    const std::shared_ptr<const arrow::KeyValueMetadata>& metadata, const arrow::FieldVector& fields);

}  // namespace strake::data
