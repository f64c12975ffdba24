#pragma once

#include <arrow/record_batch.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strake/data/text_encoding.h"

namespace strake::data {

struct RowSourceOptions {
  std::filesystem::path file;
  TextEncoding encoding = TextEncoding::kUtf8;
  int64_t rows_per_chunk = 0;
  std::vector<std::string> columns = {};            // to read; empty means all
  std::shared_ptr<arrow::Schema> schema = nullptr;  // of the file before, for formats that have none of their own
};

struct SourceRows {
  std::shared_ptr<arrow::RecordBatch> batch;  // null at the end of the file
  std::vector<int64_t> lines;                 // as in Table::Content
};

// Rows of one file in order. A new format is one more of these and one line in table_reader.cpp.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Of the columns to read, in the file's order.
  virtual std::shared_ptr<arrow::Schema> schema() const = 0;
  // Of all columns, also those that are not to be read.
  virtual std::vector<std::string> names() const { return schema()->field_names(); }
  // None: only reading them tells.
  virtual std::optional<int64_t> num_rows() const { return std::nullopt; }
  // Before the first next(): its rows have this schema, made by joint_schema() of schema() and others; of JSON lines
  // only a type takes the place of null. Formats of one column do without.
  virtual void give_as(const std::shared_ptr<arrow::Schema>& /*schema*/) {}
  virtual SourceRows next() = 0;
  // Before the first next(): passes over up to `rows` rows without reading them, as far as the format allows it.
  // Returns how many.
  virtual int64_t skip(int64_t /*rows*/) { return 0; }
};

std::unique_ptr<RowSource> open_parquet(const RowSourceOptions& options);
std::unique_ptr<RowSource> open_delimited(const RowSourceOptions& options, char delimiter);
std::unique_ptr<RowSource> open_json_lines(const RowSourceOptions& options);
std::unique_ptr<RowSource> open_text(const RowSourceOptions& options);

}  // namespace strake::data
