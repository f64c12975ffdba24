#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>

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

template <typename ArrayType, typename Builder>
std::shared_ptr<arrow::Array> decoded(const arrow::Array& array, TextEncoding encoding, const std::string& file,
                                      int64_t first_row) {
  const auto& strings = static_cast<const ArrayType&>(array);
  Builder builder;
  std::string text;
  for (int64_t i = 0; i < array.length(); ++i) {
    if (strings.IsNull(i)) {
      require_ok(builder.AppendNull(), file);
      continue;
    }
    text.clear();
    const std::string_view bytes = strings.GetView(i);
    if (const auto bad = append_decoded(bytes, encoding, text)) {
      fail(ErrorKind::kData, "{}, row {}, byte offset {} of the value: {}", file, first_row + i, *bad,
           describe_bad_byte(static_cast<unsigned char>(bytes[*bad]), encoding));
    }
    require_ok(builder.Append(text), file);
  }
  return value_of(builder.Finish(), file);
}

template <typename ArrayType>
void require_utf8(const arrow::Array& array, const std::string& column, const std::string& file, int64_t first_row) {
  const auto& strings = static_cast<const ArrayType&>(array);
  for (int64_t i = 0; i < array.length(); ++i) {
    if (strings.IsNull(i)) continue;
    const std::string_view text = strings.GetView(i);
    const size_t valid = check_utf8(text).valid;
    require(valid == text.size(), ErrorKind::kData, "{}, row {}, column '{}', byte offset {} of the value: {}", file,
            first_row + i, printable(column), valid,
            describe_bad_byte(static_cast<unsigned char>(text[std::min(valid, text.size() - 1)]), TextEncoding::kUtf8));
  }
}

// The same array as bytes: the full validation of string arrays also refuses bad UTF-8, but without saying where.
std::shared_ptr<arrow::Array> as_binary(const arrow::Array& array) {
  auto data = array.data()->Copy();
  data->type = array.type_id() == arrow::Type::STRING ? arrow::binary() : arrow::large_binary();
  return arrow::MakeArray(data);
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
    batches_ = guarded(file_, [&] {
      std::vector<int> groups(static_cast<size_t>(reader_->num_row_groups()));
      for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int>(i);
      return value_of(options.columns.empty()
                          ? reader_->GetRecordBatchReader(groups)
                          : reader_->GetRecordBatchReader(groups, leaves_of(*whole, options.columns)),
                      file_);
    });
  }

  std::shared_ptr<arrow::Schema> schema() const override { return batches_->schema(); }

  SourceRows next() override {
    SourceRows rows;
    rows.batch = guarded(file_, [&] { return value_of(batches_->Next(), file_); });
    if (!rows.batch) return rows;
    rows.batch = checked(*rows.batch);
    first_row_ += rows.batch->num_rows();
    return rows;
  }

 private:
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

  // Offsets, indices and text come from outside: nothing may touch them before this.
  std::shared_ptr<arrow::RecordBatch> checked(const arrow::RecordBatch& batch) const {
    require_ok(batch.Validate(), file_);
    arrow::ArrayVector columns;
    for (int i = 0; i < batch.num_columns(); ++i) {
      std::shared_ptr<arrow::Array> array = batch.column(i);
      const arrow::Type::type id = array->type_id();
      if (id == arrow::Type::STRING || id == arrow::Type::LARGE_STRING) {
        require_ok(as_binary(*array)->ValidateFull(), file_);
        array = with_encoding(array, batch.column_name(i));
      } else {
        require_ok(array->ValidateFull(), file_);
      }
      columns.push_back(std::move(array));
    }
    return arrow::RecordBatch::Make(batch.schema(), batch.num_rows(), std::move(columns));
  }

  std::shared_ptr<arrow::Array> with_encoding(const std::shared_ptr<arrow::Array>& array,
                                              const std::string& column) const {
    const bool large = array->type_id() == arrow::Type::LARGE_STRING;
    if (encoding_ == TextEncoding::kUtf8) {
      large ? require_utf8<arrow::LargeStringArray>(*array, column, file_, first_row_)
            : require_utf8<arrow::StringArray>(*array, column, file_, first_row_);
      return array;
    }
    return large ? decoded<arrow::LargeStringArray, arrow::LargeStringBuilder>(*array, encoding_, file_, first_row_)
                 : decoded<arrow::StringArray, arrow::StringBuilder>(*array, encoding_, file_, first_row_);
  }

  std::string file_;
  TextEncoding encoding_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
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
