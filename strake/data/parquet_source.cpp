#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <optional>

#include "strake/data/checked_batch_arrow.h"
#include "strake/data/parquet_file_arrow.h"
#include "strake/data/row_source_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"
#include "strake/data/text_input.h"

namespace strake::data {
namespace {

constexpr int64_t kBufferBytes = int64_t{1} << 20;
constexpr int64_t kMostBytes = int64_t{8} << 30;

// Fewer rows at a time where rows are long, going by the row groups' own sizes.
int64_t batch_rows(const parquet::FileMetaData& metadata, int64_t rows_per_chunk) {
  int64_t longest = 1;
  for (int i = 0; i < metadata.num_row_groups(); ++i) {
    const auto group = metadata.RowGroup(i);
    longest = std::max(longest, group->total_byte_size() / std::max<int64_t>(1, group->num_rows()));
  }
  return std::clamp<int64_t>(kChunkBytes / longest, 1, rows_per_chunk);
}

class ParquetSource final : public RowSource {
 public:
  explicit ParquetSource(const RowSourceOptions& options)
      : file_(options.file.string()),
        encoding_(options.encoding),
        reader_(open_parquet_reader(options.file, options.rows_per_chunk)) {
    reader_->set_batch_size(batch_rows(*reader_->parquet_reader()->metadata(), options.rows_per_chunk));
    std::shared_ptr<arrow::Schema> whole;
    require_ok(reader_->GetSchema(&whole), file_);
    if (!options.columns.empty()) leaves_ = leaves_of(*whole, options.columns);
    read_from(0);
  }

  std::shared_ptr<arrow::Schema> schema() const override { return batches_->schema(); }

  SourceRows next() override {
    SourceRows rows;
    rows.batch = guarded(file_, [&] { return value_of(batches_->Next(), file_); });
    if (!rows.batch) return rows;
    rows.batch = checked_batch(*rows.batch, {encoding_, file_, first_row_});
    first_row_ += rows.batch->num_rows();
    return rows;
  }

  int64_t skip(int64_t rows) override {
    const auto metadata = reader_->parquet_reader()->metadata();
    int group = 0;
    for (; group < metadata->num_row_groups(); ++group) {
      const int64_t next = first_row_ + metadata->RowGroup(group)->num_rows();
      if (next > rows) break;
      first_row_ = next;
    }
    if (group > 0) read_from(group);
    return first_row_;
  }

 private:
  void read_from(int first_group) {
    std::vector<int> groups;
    for (int group = first_group; group < reader_->num_row_groups(); ++group) groups.push_back(group);
    batches_ = guarded(file_, [&] {
      return value_of(leaves_ ? reader_->GetRecordBatchReader(groups, *leaves_) : reader_->GetRecordBatchReader(groups),
                      file_);
    });
  }

  std::vector<int> leaves_of(const arrow::Schema& schema, const std::vector<std::string>& columns) const {
    std::vector<int> leaves;
    const auto add_leaves = [&](const auto& self, const parquet::arrow::SchemaField& field) -> void {
      if (field.is_leaf()) leaves.push_back(field.column_index);
      for (const auto& child : field.children) self(self, child);
    };
    for (const std::string& name : columns) {
      add_leaves(add_leaves,
                 reader_->manifest().schema_fields.at(static_cast<size_t>(column_index(schema, name, file_))));
    }
    std::ranges::sort(leaves);
    return leaves;
  }

  std::string file_;
  TextEncoding encoding_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::optional<std::vector<int>> leaves_;  // the columns to read; none: all
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  int64_t first_row_ = 0;
};

}  // namespace

std::unique_ptr<parquet::arrow::FileReader> open_parquet_reader(const std::filesystem::path& file,
                                                                int64_t rows_per_batch) {
  // A wrapper without state around Arrow's own pool; arrays free their memory through it, so it must outlive them all.
  static arrow::CappedMemoryPool bounded_pool(arrow::default_memory_pool(), kMostBytes);
  arrow::MemoryPool* const pool = &bounded_pool;
  require_data_file(file);
  const std::string name = file.string();
  return guarded(name, [&] {
    parquet::ReaderProperties properties(pool);
    properties.enable_buffered_stream();  // else whole column chunks are read at once
    properties.set_buffer_size(kBufferBytes);
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_pre_buffer(false);  // else whole row groups are
    arrow_properties.set_batch_size(rows_per_batch);
    parquet::arrow::FileReaderBuilder builder;
    require_ok(builder.Open(value_of(arrow::io::ReadableFile::Open(name, pool), name), properties), name);
    return value_of(builder.memory_pool(pool)->properties(arrow_properties)->Build(), name);
  });
}

std::unique_ptr<RowSource> open_parquet(const RowSourceOptions& options) {
  return std::make_unique<ParquetSource>(options);
}

}  // namespace strake::data
