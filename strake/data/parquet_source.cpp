#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/util/byte_size.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "strake/data/checked_batch_arrow.h"
#include "strake/data/column_buffers.h"
#include "strake/data/joint_schema_arrow.h"
#include "strake/data/memory_pool_arrow.h"
#include "strake/data/parquet_file_arrow.h"
#include "strake/data/row_source_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"
#include "strake/data/table_reader.h"
#include "strake/data/text_input.h"

namespace strake::data {
namespace {

constexpr int64_t kDecodedRows = 32;  // at a time: what was encoded as a dictionary may become any number of bytes

// Fewer rows at a time where rows are long, going by the row groups' own sizes.
int64_t batch_rows(const parquet::FileMetaData& metadata, int64_t most) {
  int64_t longest = 1;
  for (int i = 0; i < metadata.num_row_groups(); ++i) {
    const auto group = metadata.RowGroup(i);
    longest = std::max(longest, group->total_byte_size() / std::max<int64_t>(1, group->num_rows()));
  }
  return std::clamp<int64_t>(kTableBytes / longest, 1, most);
}

bool has_dictionary(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY) return true;
  return std::ranges::any_of(type.fields(), [](const auto& field) { return has_dictionary(*field->type()); });
}

// Within lists and structures, of which Arrow cannot join what it decodes from several row groups.
bool has_nested_dictionary(const arrow::FieldVector& fields) {
  return std::ranges::any_of(fields, [](const auto& field) {
    return field->type()->id() != arrow::Type::DICTIONARY && has_dictionary(*field->type());
  });
}

// With where a value ends: of many columns of short ones that is most.
template <typename ArrayType>
void add_lengths(const arrow::Array& array, std::vector<int64_t>& bytes) {
  const auto& values = static_cast<const ArrayType&>(array);
  constexpr auto kEnd = static_cast<int64_t>(sizeof(typename ArrayType::offset_type));
  for (int64_t i = 0; i < values.length(); ++i) bytes[static_cast<size_t>(i)] += values.value_length(i) + kEnd;
}

void add_view_lengths(const arrow::StringViewArray& array, std::vector<int64_t>& bytes) {
  for (int64_t i = 0; i < array.length(); ++i) {
    if (array.IsValid(i)) bytes[static_cast<size_t>(i)] += std::ssize(array.GetView(i));
  }
}

// Rows of a dictionary have the length of their value, as they will when they are used.
void add_dictionary_lengths(const arrow::DictionaryArray& array, std::vector<int64_t>& bytes);

// The values of a list count one by one, with where they are: small ones in Parquet may be large where they are used.
template <typename ListArray>
void add_list_bytes(const arrow::Array& array, std::vector<int64_t>& bytes);

void add_bytes(const arrow::Array& array, std::vector<int64_t>& bytes) {
  switch (array.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return add_lengths<arrow::BinaryArray>(array, bytes);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return add_lengths<arrow::LargeBinaryArray>(array, bytes);
    case arrow::Type::STRING_VIEW:
      return add_view_lengths(static_cast<const arrow::StringViewArray&>(array), bytes);
    case arrow::Type::DICTIONARY:
      return add_dictionary_lengths(static_cast<const arrow::DictionaryArray&>(array), bytes);
    case arrow::Type::LIST:
      return add_list_bytes<arrow::ListArray>(array, bytes);
    case arrow::Type::LARGE_LIST:
      return add_list_bytes<arrow::LargeListArray>(array, bytes);
    default:
      // Of numbers, which are most columns, without a look at the buffers.
      if (const int width = array.type()->bit_width(); width > 0) {
        for (int64_t& of_row : bytes) of_row += (width + 7) / 8;
        return;
      }
      const int64_t whole = arrow::util::ReferencedBufferSize(array).ValueOr(0);
      for (int64_t& of_row : bytes) of_row += whole / std::ssize(bytes);
  }
}

void add_dictionary_lengths(const arrow::DictionaryArray& array, std::vector<int64_t>& bytes) {
  std::vector<int64_t> of_values(static_cast<size_t>(array.dictionary()->length()));
  if (!of_values.empty()) add_bytes(*array.dictionary(), of_values);
  for (int64_t i = 0; i < array.length(); ++i) {
    if (array.IsValid(i)) bytes[static_cast<size_t>(i)] += of_values[static_cast<size_t>(array.GetValueIndex(i))];
  }
}

template <typename ListArray>
void add_list_bytes(const arrow::Array& array, std::vector<int64_t>& bytes) {
  const auto& lists = static_cast<const ListArray&>(array);
  const int64_t first = lists.value_offset(0);
  const auto values = lists.values()->Slice(first, lists.value_offset(array.length()) - first);
  if (values->length() == 0) return;
  std::vector<int64_t> of_values(static_cast<size_t>(values->length()), sizeof(int32_t));
  add_bytes(*values, of_values);
  for (int64_t i = 0; i < array.length(); ++i) {
    const auto begin = of_values.begin() + (lists.value_offset(i) - first);
    bytes[static_cast<size_t>(i)] += std::accumulate(begin, begin + lists.value_length(i), int64_t{0});
  }
}

// Rows that were decoded together and not all handed out yet.
struct DecodedRows {
  std::shared_ptr<arrow::RecordBatch> batch;
  std::vector<int64_t> bytes;  // of each row
  int64_t next = 0;

  bool is_empty() const { return next == std::ssize(bytes); }
  // The next rows: `most`, or up to the one with which `left` bytes are used up.
  std::shared_ptr<arrow::RecordBatch> take(int64_t most, int64_t& left) {
    const int64_t first = next;
    while (next < std::ssize(bytes) && next - first < most && left > 0) left -= bytes[static_cast<size_t>(next++)];
    return batch->Slice(first, next - first);
  }
};

class ParquetSource final : public RowSource {
 public:
  explicit ParquetSource(const RowSourceOptions& options)
      : file_(options.file.string()),
        encoding_(options.encoding),
        rows_per_chunk_(options.rows_per_chunk),
        reader_(open_parquet_reader(options.file, options.rows_per_chunk)) {
    require_ok(reader_->GetSchema(&whole_), file_);
    arrow::FieldVector fields;
    for (int i = 0; i < whole_->num_fields(); ++i) {
      const auto& field = whole_->field(i);
      if (!options.columns.empty() && std::ranges::find(options.columns, field->name()) == options.columns.end())
        continue;
      fields.push_back(field);
      add_leaves(reader_->manifest().schema_fields.at(static_cast<size_t>(i)));
    }
    std::ranges::sort(leaves_);
    schema_ = arrow::schema(std::move(fields), whole_->metadata());
    given_ = schema_;
  }

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  std::vector<std::string> names() const override { return whole_->field_names(); }
  std::optional<int64_t> num_rows() const override { return reader_->parquet_reader()->metadata()->num_rows(); }

  void give_as(const std::shared_ptr<arrow::Schema>& schema) override { given_ = schema; }

  SourceRows next() override {
    arrow::RecordBatchVector parts;
    int64_t rows_left = rows_per_chunk_;
    int64_t bytes_left = kTableBytes;
    while (rows_left > 0 && bytes_left > 0 && (!decoded_.is_empty() || decode())) {
      parts.push_back(with_schema(decoded_.take(rows_left, bytes_left), given_, file_));
      rows_left -= parts.back()->num_rows();
      if (has_dictionary_) break;  // several would have to be made one
    }
    if (parts.empty()) return {};
    return {.batch = parts.size() == 1 ? parts.front() : value_of(arrow::ConcatenateRecordBatches(parts), file_),
            .lines = {}};
  }

  int64_t skip(int64_t rows) override {
    const auto metadata = reader_->parquet_reader()->metadata();
    int group = 0;
    for (; group < metadata->num_row_groups(); ++group) {
      const int64_t next = first_row_ + metadata->RowGroup(group)->num_rows();
      if (next > rows) break;
      first_row_ = next;
    }
    first_group_ = group;
    return first_row_;
  }

 private:
  bool decode() {
    do {
      const std::string where = fmt::format("{}, rows from {} on", file_, first_row_);
      const auto batch = guarded(where, [&] { return next_batch(where); });
      if (!batch) return false;
      decoded_ = {.batch = checked_batch(*batch, {encoding_, file_, first_row_}),
                  .bytes = std::vector<int64_t>(static_cast<size_t>(batch->num_rows()))};
    } while (decoded_.is_empty());
    first_row_ += std::ssize(decoded_.bytes);
    for (const auto& column : decoded_.batch->columns()) add_bytes(*column, decoded_.bytes);
    return true;
  }

  std::shared_ptr<arrow::RecordBatch> next_batch(const std::string& where) {
    if (!batches_) open_batches();
    auto next = batches_->Next();
    while (next.ok() && *next == nullptr && first_group_ < reader_->num_row_groups()) {
      open_batches();
      next = batches_->Next();
    }
    const bool is_bad_text = !next.ok() && next.status().message().find("UTF8") != std::string::npos;
    require(
        !is_bad_text, ErrorKind::kData,
        "{}: a dictionary-encoded column of strings is not valid UTF-8, and --encoding is for plain strings: write the "
        "column as such",
        where);
    return value_of(std::move(next), where);
  }

  // Not before rows are read: where files are only compared their footers are enough.
  void open_batches() {
    has_dictionary_ = has_dictionary(arrow::StructType(given_->fields()));
    const bool is_unpacked_later = has_dictionary(arrow::StructType(schema_->fields()));
    reader_->set_batch_size(batch_rows(*reader_->parquet_reader()->metadata(),
                                       is_unpacked_later ? rows_per_chunk_ : std::min(kDecodedRows, rows_per_chunk_)));
    const bool joins_groups = !has_nested_dictionary(schema_->fields());
    std::vector<int> groups;
    while (first_group_ < reader_->num_row_groups() && (groups.empty() || joins_groups)) {
      groups.push_back(first_group_++);
    }
    batches_ = value_of(reader_->GetRecordBatchReader(groups, leaves_), file_);
  }

  void add_leaves(const parquet::arrow::SchemaField& field) {
    if (field.is_leaf()) leaves_.push_back(field.column_index);
    for (const auto& child : field.children) add_leaves(child);
  }

  std::string file_;
  TextEncoding encoding_;
  int64_t rows_per_chunk_;
  bool has_dictionary_ = false;
  DecodedRows decoded_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::Schema> whole_;
  std::shared_ptr<arrow::Schema> schema_;  // of the columns to read
  std::shared_ptr<arrow::Schema> given_;
  std::vector<int> leaves_;  // these as Parquet counts them
  int first_group_ = 0;      // of those that batches_ does not have
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  int64_t first_row_ = 0;  // of the next rows to decode
};

}  // namespace

std::unique_ptr<parquet::arrow::FileReader> open_parquet_reader(const std::filesystem::path& file,
                                                                int64_t rows_per_batch) {
  arrow::MemoryPool* const pool = bounded_pool();
  require_data_file(file);
  const std::string name = file.string();
  return guarded(name, [&] {
    parquet::ReaderProperties properties(pool);
    properties.enable_buffered_stream();  // else whole column chunks are read at once
    const auto stream = value_of(arrow::io::ReadableFile::Open(name, pool), name);
    const std::shared_ptr<parquet::FileMetaData> metadata = parquet::ReadMetaData(stream);
    properties.set_buffer_size(column_buffer(metadata->num_columns()));
    properties.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_pre_buffer(false);               // else whole row groups are
    arrow_properties.set_arrow_extensions_enabled(true);  // UUID and JSON remain what they are
    arrow_properties.set_batch_size(rows_per_batch);
    // Of Spark, Hive and Impala: nanoseconds would reach only from 1677 to 2262, and Spark reads none.
    arrow_properties.set_coerce_int96_timestamp_unit(arrow::TimeUnit::MICRO);
    parquet::arrow::FileReaderBuilder builder;
    require_ok(builder.Open(stream, properties, metadata), name);
    return value_of(builder.memory_pool(pool)->properties(arrow_properties)->Build(), name);
  });
}

std::unique_ptr<RowSource> open_parquet(const RowSourceOptions& options) {
  return std::make_unique<ParquetSource>(options);
}

}  // namespace strake::data
