#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "strake/core/crc32c.h"
#include "strake/data/table.h"

namespace strake::data {

// `width` numbers per row, one row after the other; written as list<float>.
struct FloatRows {
  std::vector<float> values;
  int64_t width = 0;
};

// A part [begin, end) of a row's text, in code points.
struct LabelledSpan {
  std::string label;
  float score = 0;
  int32_t begin = 0;
  int32_t end = 0;

  bool operator==(const LabelledSpan&) const = default;
};
using SpanRows = std::vector<std::vector<LabelledSpan>>;  // any number of them per row

// Written as list<struct<NAME, score, start, end>>.
struct SpanLists {
  SpanRows rows;
  std::string label_name;
};

using TextLists = std::vector<std::vector<std::string>>;  // written as list<string>
template <typename Value>
using OptionalLists = std::vector<std::vector<std::optional<Value>>>;  // of string or float, null where absent

// A column that the program adds: one value per row, null where an optional one is absent.
struct ExtraColumn {
  using Values = std::variant<std::vector<std::string>, std::vector<float>, std::vector<std::optional<float>>,
                              std::vector<int32_t>, std::vector<int64_t>, FloatRows, std::vector<std::vector<int32_t>>,
                              TextLists, OptionalLists<std::string>, OptionalLists<float>, SpanLists>;
  std::string name;
  Values values;
};

struct TableWriterOptions {
  // A row group ends at whichever comes first: small enough to be read in parallel, large enough to compress.
  int64_t rows_per_group = int64_t{64} << 10;
  int64_t bytes_per_group = int64_t{32} << 20;
  std::map<std::string, std::string> metadata = {};  // of the file
};

// Writes input rows with columns added, as Parquet (zstd). Input columns keep their types. The columns are fixed by the
// first append. The file appears under its name at finish(), complete and durable; without finish() the old file stays
// as it was. Errors: kIo naming the file (disk full and the like), kData if an added column's name is taken.
// One thread at a time.
class TableWriter {
 public:
  TableWriter(const std::filesystem::path& file, const TableWriterOptions& options);
  ~TableWriter();
  TableWriter(TableWriter&&) noexcept;
  TableWriter& operator=(TableWriter&&) noexcept;

  void append(const Table& table, std::span<const ExtraColumn> extra);
  // At least one table, possibly without rows, must have been appended. Returns what the file is then.
  FileSum finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strake::data
