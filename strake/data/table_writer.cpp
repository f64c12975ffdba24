#include "strake/data/table_writer.h"

#include <arrow/api.h>

#include <utility>

#include "strake/data/extra_column_arrow.h"
#include "strake/data/parquet_file_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"

namespace strake::data {

struct TableWriter::State {
  ParquetOutput output;
  std::map<std::string, std::string> metadata;
};

TableWriter::TableWriter(const std::filesystem::path& file, const TableWriterOptions& options)
    : state_(new State{
          .output = {file, {.rows_per_group = options.rows_per_group, .bytes_per_group = options.bytes_per_group}},
          .metadata = options.metadata}) {}

TableWriter::~TableWriter() = default;
TableWriter::TableWriter(TableWriter&&) noexcept = default;
TableWriter& TableWriter::operator=(TableWriter&&) noexcept = default;

void TableWriter::append(const Table& table, std::span<const ExtraColumn> extra) {
  const Table::Content& content = table.content();
  arrow::FieldVector fields = content.batch->schema()->fields();
  arrow::ArrayVector columns = content.batch->columns();
  for (const ExtraColumn& column : extra) {
    for (const auto& field : fields) {
      require(field->name() != column.name, ErrorKind::kData,
              "{}: the column '{}' that would be added already exists; rename or drop it", content.file,
              printable(column.name));
    }
    columns.push_back(to_arrow(column, state_->output.name()));
    require(columns.back()->length() == table.num_rows(), ErrorKind::kInternal,
            "{}: column '{}' has {} values for {} rows", state_->output.name(), column.name, columns.back()->length(),
            table.num_rows());
    fields.push_back(arrow::field(column.name, columns.back()->type()));
  }
  auto schema = arrow::schema(std::move(fields), content.batch->schema()->metadata());
  state_->output.write(arrow::RecordBatch::Make(std::move(schema), table.num_rows(), std::move(columns)));
}

void TableWriter::finish() { state_->output.finish(state_->metadata); }

}  // namespace strake::data
