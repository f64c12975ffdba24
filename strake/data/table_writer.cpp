#include "strake/data/table_writer.h"

#include <utility>

#include "strake/data/extra_column_arrow.h"
#include "strake/data/parquet_file_arrow.h"

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
  state_->output.write(with_columns(table, extra, state_->output.name()));
}

FileSum TableWriter::finish() { return state_->output.finish(state_->metadata); }

}  // namespace strake::data
