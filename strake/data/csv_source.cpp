#include <arrow/api.h>

#include <algorithm>
#include <set>

#include "strake/data/csv_record_reader.h"
#include "strake/data/joint_schema_arrow.h"
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
    std::set<std::string> known;
    arrow::FieldVector fields;
    for (const CsvRecordReader::Field& field : records_.fields()) {
      // pandas writes its index under an empty name and reads it back under this one.
      std::string name = field.text.empty() ? fmt::format("Unnamed: {}", names_.size()) : std::string(field.text);
      const bool is_read = options.columns.empty() || std::ranges::find(options.columns, name) != options.columns.end();
      require(!is_read || known.insert(name).second, ErrorKind::kData, "{}, line {}: two columns are named '{}'",
              records_.name(), records_.line(), printable(name));
      if (is_read) {
        read_.push_back(names_.size());
        fields.push_back(arrow::field(name, arrow::utf8()));
      }
      names_.push_back(std::move(name));
    }
    schema_ = arrow::schema(std::move(fields));
  }

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  std::vector<std::string> names() const override { return names_; }

  void give_as(const std::shared_ptr<arrow::Schema>& schema) override { given_ = schema; }

  int64_t skip(int64_t rows) override {
    int64_t skipped = 0;
    for (; skipped < rows && records_.next(); ++skipped) require_all_fields();
    return skipped;
  }

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
    if (given_) rows.batch = with_schema(rows.batch, given_, records_.name());
    return rows;
  }

 private:
  void require_all_fields() const {
    if (records_.fields().size() == names_.size()) return;
    fail(ErrorKind::kData, "{}, line {}: {} fields found, {} expected ({})", records_.name(), records_.line(),
         records_.fields().size(), names_.size(), printable(fmt::format("{}", fmt::join(names_, ", ")), 300));
  }

  int64_t append(std::vector<arrow::StringBuilder>& builders) {
    require_all_fields();
    const auto& fields = records_.fields();
    int64_t bytes = 0;
    for (size_t i = 0; i < builders.size(); ++i) {
      const CsvRecordReader::Field& field = fields[read_[i]];
      const bool is_null = field.text.empty() && !field.quoted;
      require_ok(is_null ? builders[i].AppendNull() : builders[i].Append(field.text), records_.name());
      bytes += static_cast<int64_t>(field.text.size() + sizeof(int32_t));  // with where it ends
    }
    return bytes;
  }

  CsvRecordReader records_;
  int64_t rows_per_chunk_;
  std::vector<std::string> names_;  // of the header
  std::vector<size_t> read_;        // which of them are read
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::Schema> given_;  // null: schema_
};

}  // namespace

std::unique_ptr<RowSource> open_delimited(const RowSourceOptions& options, char delimiter) {
  return std::make_unique<CsvSource>(options, delimiter);
}

}  // namespace strake::data
