#include <arrow/api.h>

#include "strake/data/row_source_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_reader.h"
#include "strake/data/text_input.h"

namespace strake::data {
namespace {

class TextSource final : public RowSource {
 public:
  explicit TextSource(const RowSourceOptions& options)
      : input_(TextInput(options.file, options.encoding)), rows_per_chunk_(options.rows_per_chunk) {}

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }

  int64_t skip(int64_t rows) override {
    int64_t skipped = 0;
    while (skipped < rows && input_.next()) ++skipped;
    return skipped;
  }

  SourceRows next() override {
    SourceRows rows;
    arrow::StringBuilder builder;
    while (builder.length() < rows_per_chunk_ && builder.value_data_length() < kTableBytes) {
      const auto line = input_.next();
      if (!line) break;
      require_ok(builder.Append(*line), input_.name());
      rows.lines.push_back(input_.line());
    }
    if (builder.length() > 0) {
      const int64_t count = builder.length();
      rows.batch = arrow::RecordBatch::Make(schema_, count, {value_of(builder.Finish(), input_.name())});
    }
    return rows;
  }

 private:
  LineInput input_;
  int64_t rows_per_chunk_;
  std::shared_ptr<arrow::Schema> schema_ = arrow::schema({arrow::field("text", arrow::utf8())});
};

}  // namespace

std::unique_ptr<RowSource> open_text(const RowSourceOptions& options) { return std::make_unique<TextSource>(options); }

}  // namespace strake::data
