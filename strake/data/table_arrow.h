#pragma once

#include <arrow/record_batch.h>

#include <memory>
#include <string>
#include <vector>

#include "strake/core/json.h"
#include "strake/data/table.h"

namespace strake::data {

struct Table::Content {
  std::shared_ptr<arrow::RecordBatch> batch;  // validated in full
  std::string file;
  int64_t first_row = 0;  // in all files
  int64_t first_row_in_file = 0;
  std::vector<int64_t> lines;  // line on which each row starts; empty for Parquet
  // Of the file; the batch has that of the first one.
  std::shared_ptr<const arrow::KeyValueMetadata> metadata = nullptr;
  // Of the batch itself, where it came in a stream.
  std::shared_ptr<const arrow::KeyValueMetadata> batch_metadata = nullptr;
};

// Key of the metadata of a string field whose values are JSON text of any kind, not plain strings.
inline constexpr const char* kJsonFieldKey = "strake.json";

// Of a string field: others may have the key from elsewhere.
bool is_json(const arrow::Field& field);
// The value of such a column in a row that is not null. Error (kData), naming the row, for text that is no JSON.
Json json_of(const arrow::Array& array, int64_t row, const Table& table);
// A string of any form.
bool is_text(const arrow::DataType& type);
// A list of any length, or of one. Not list views, which Arrow 26 casts to lists of other values.
bool is_any_list(const arrow::DataType& type);

std::shared_ptr<arrow::Array> cast(const std::shared_ptr<arrow::Array>& array,
                                   const std::shared_ptr<arrow::DataType>& type, const std::string& file);

// Of a dictionary its values, of an extension (JSON) what they are stored as; other arrays are returned as they are.
std::shared_ptr<arrow::Array> unpacked(const std::shared_ptr<arrow::Array>& array, const std::string& file);

// A batch without rows. (Arrow's MakeEmpty knows no lists of UUIDs.)
std::shared_ptr<arrow::RecordBatch> empty_batch(const std::shared_ptr<arrow::Schema>& schema, const std::string& file);

// Index of the only column with this name, or Error (kData) as described at Table::text.
int column_index(const arrow::Schema& schema, const std::string& name, const std::string& file);

}  // namespace strake::data
