#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strake/data/input_files.h"
#include "strake/data/table.h"
#include "strake/data/text_encoding.h"

namespace strake::data {

// A table ends with the row that brings it to so many bytes, so that long rows do not need more memory.
inline constexpr int64_t kTableBytes = int64_t{16} << 20;

struct TableSource {
  // As of expand_paths().
  std::vector<std::filesystem::path> paths = {};
  std::optional<TableFormat> format = std::nullopt;  // by extension; one for all files
  TextEncoding encoding = TextEncoding::kUtf8;
  int64_t rows_per_chunk = 8192;
  std::vector<std::string> columns = {};  // read only these; empty means all
  // Rows [first_row, end_row) of all files together; row groups of Parquet before and after them are not read.
  int64_t first_row = 0;
  int64_t end_row = std::numeric_limits<int64_t>::max();
};

// Of the first file, also those that TableSource::columns leaves out.
std::vector<std::string> names_of_columns(const TableSource& source);

// Reads tables of any size in chunks, in constant memory: kTableBytes and a row, of Parquet 32 rows, or all rows of a
// chunk where a column is a dictionary. Where the chunks end depends on the files and the source alone.
//  Parquet   all types; row order of the file
//  CSV, TSV  RFC 4180 with a header line; every column is text; an empty field without quotes is null
//  JSONL     one object per line; the columns are the keys of the first chunk; other keys than those of
//            TableSource::columns may hold any JSON; strings, integers, decimals, booleans and nulls keep their
//            type, other values become JSON text that cannot serve as text or label
//  text      one row per line, column "text"
// All files must have the same columns, of those that are read. Parquet and CSV files are compared before the first row
// is read, those of JSONL, of which only the rows tell, when they are reached. Errors name file and row or line: kIo
// for missing and unreadable files, kData for empty, cut, malformed or wrongly encoded ones. One thread at a time; the
// tables may be used in others.
class TableReader {
 public:
  explicit TableReader(TableSource source);
  ~TableReader();
  TableReader(TableReader&&) noexcept;
  TableReader& operator=(TableReader&&) noexcept;

  // Next rows, all of one file. The first table is always there, without rows if the source has none.
  std::optional<Table> next();

  // The columns, with the types that they have in all tables.
  Table no_rows() const;
  // Of all files, whatever first_row and end_row are: from the footers of Parquet, else by reading them.
  int64_t count_rows() const;
  // In the place of first_row and end_row of the source; before the first next().
  void limit_to(int64_t first_row, int64_t end_row);

  std::vector<std::string> column_names() const;
  const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  struct State;
  TableSource source_;
  std::vector<std::filesystem::path> files_;
  std::unique_ptr<State> state_;
};

}  // namespace strake::data
