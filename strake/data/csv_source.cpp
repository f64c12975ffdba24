#include <arrow/api.h>

#include <set>

#include "strake/data/csv_record_reader.h"
#include "strake/data/row_source_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_reader.h"

namespace strake::data {
namespace {

// All columns are strings, so that what is written back is what was read. An empty field without quotes is null.
class CsvSource final : public RowSource {
 public:
  CsvSource(const RowSourceOptions& options, char delimiter)
      : records_(TextInput(options.file, options.encoding), delimiter), rows_per_chunk_(options.rows_per_chunk) {
    require(records_.next(), ErrorKind::kData, "{} has no header line", records_.name());
    std::set<std::string> names;
    arrow::FieldVector fields;
    for (const CsvRecordReader::Field& field : records_.fields()) {
      // pandas writes its index under an empty name and reads it back under this one.
      std::string name = field.text.empty() ? fmt::format("Unnamed: {}", fields.size()) : std::string(field.text);
      require(names.insert(name).second, ErrorKind::kData, "{}, line {}: two columns are named '{}'", records_.name(),
              records_.line(), printable(name));
      fields.push_back(arrow::field(std::move(name), arrow::utf8()));
    }
    schema_ = arrow::schema(std::move(fields));
  }

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }

  SourceRows next() override {
    SourceRows rows;
    std::vector<arrow::StringBuilder> builders(static_cast<size_t>(schema_->num_fields()));
    int64_t bytes = 0;
    while (static_cast<int64_t>(rows.lines.size()) < rows_per_chunk_ && bytes < kTableBytes && records_.next()) {
      bytes += append(builders);
      rows.lines.push_back(records_.line());
    }
    if (rows.lines.empty()) return rows;
    arrow::ArrayVector arrays;
    for (arrow::StringBuilder& builder : builders) arrays.push_back(value_of(builder.Finish(), records_.name()));
    rows.batch = arrow::RecordBatch::Make(schema_, static_cast<int64_t>(rows.lines.size()), std::move(arrays));
    return rows;
  }

 private:
  int64_t append(std::vector<arrow::StringBuilder>& builders) {
    const auto& fields = records_.fields();
    require(fields.size() == builders.size(), ErrorKind::kData, "{}, line {}: {} fields found, {} expected ({})",
            records_.name(), records_.line(), fields.size(), builders.size(),
            printable(fmt::format("{}", fmt::join(schema_->field_names(), ", ")), 300));
    int64_t bytes = 0;
    for (size_t i = 0; i < fields.size(); ++i) {
      const bool is_null = fields[i].text.empty() && !fields[i].quoted;
      require_ok(is_null ? builders[i].AppendNull() : builders[i].Append(fields[i].text), records_.name());
      bytes += static_cast<int64_t>(fields[i].text.size());
    }
    return bytes;
  }

  CsvRecordReader records_;
  int64_t rows_per_chunk_;
  std::shared_ptr<arrow::Schema> schema_;
};

}  // namespace

std::unique_ptr<RowSource> open_delimited(const RowSourceOptions& options, char delimiter) {
  return std::make_unique<CsvSource>(options, delimiter);
}

}  // namespace strake::data
