#include <arrow/api.h>
#include <arrow/io/file.h>
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
#include "strake/data/row_bytes_arrow.h"
#include "strake/data/row_source_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"
#include "strake/data/table_reader.h"
#include "strake/data/text_input.h"

namespace strake::data {
namespace {

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

// Where rows come from.
struct ParquetRows {
  std::string file;
  std::unique_ptr<parquet::arrow::FileReader> reader;
  std::optional<TextEncoding> encoding;

  std::string from(int64_t row) const { return fmt::format("{}, rows from {} on", file, row); }
};

// Some columns of what a source hands over.
struct Columns {
  std::vector<int> fields;  // places in the schema of what is read
  std::vector<int> leaves;  // as Parquet counts them
  std::vector<int> places;  // in the schema of what is handed over
  std::shared_ptr<arrow::Schema> given;

  void add(int field, const parquet::arrow::SchemaField& of_file) {
    fields.push_back(field);
    add_leaves(of_file);
  }
  void give_as(const arrow::Schema& read, const arrow::Schema& whole) {
    const bool is_by_place = read.field_names() == whole.field_names();  // where names may occur twice
    arrow::FieldVector own;
    places.clear();
    for (const int field : fields) {
      places.push_back(is_by_place ? field : whole.GetFieldIndex(read.field(field)->name()));
      own.push_back(whole.field(places.back()));
    }
    given = arrow::schema(std::move(own));
  }

 private:
  void add_leaves(const parquet::arrow::SchemaField& field) {
    if (field.is_leaf()) leaves.push_back(field.column_index);
    for (const auto& child : field.children) add_leaves(child);
  }
};

bool has_one_width(const parquet::arrow::SchemaField& field) {
  const arrow::DataType& type = *field.field->type();
  return field.is_leaf() && type.id() != arrow::Type::DICTIONARY && type.id() != arrow::Type::EXTENSION &&
         type.bit_width() > 0;
}

// Columns whose values all have one width: decoded as many rows at a time as are wanted.
class FixedColumns {
 public:
  Columns columns;
  int64_t row_bytes = 0;

  void open(ParquetRows& source, const std::vector<int>& groups, int64_t first_row) {
    row_ = first_row;
    batches_ = value_of(source.reader->GetRecordBatchReader(groups, columns.leaves), source.file);
  }

  // The next `count` rows, or as many as are left.
  std::shared_ptr<arrow::RecordBatch> take(ParquetRows& source, int64_t count) {
    arrow::RecordBatchVector parts;
    while (count > 0 && (rest_ || decode(source, count))) {
      parts.push_back(rest_->Slice(0, count));
      count -= parts.back()->num_rows();
      rest_ = parts.back()->num_rows() < rest_->num_rows() ? rest_->Slice(parts.back()->num_rows()) : nullptr;
    }
    if (parts.empty()) return empty_batch(columns.given, source.file);
    return parts.size() == 1 ? parts.front() : value_of(arrow::ConcatenateRecordBatches(parts), source.file);
  }

 private:
  bool decode(ParquetRows& source, int64_t count) {
    const std::string where = source.from(row_);
    source.reader->set_batch_size(count);
    const auto batch = guarded(where, [&] { return value_of(batches_->Next(), where); });
    if (!batch) return false;
    rest_ = with_schema(checked_batch(*batch, {source.encoding, source.file, row_}), columns.given, source.file);
    row_ += rest_->num_rows();
    return true;
  }

  std::shared_ptr<arrow::RecordBatchReader> batches_;
  std::shared_ptr<arrow::RecordBatch> rest_;  // decoded and not handed out yet
  int64_t row_ = 0;                           // the next one to decode
};

// All others: decoded few rows at a time, since what was encoded as a dictionary may become any number of bytes.
class VaryingColumns {
 public:
  Columns columns;

  // `types`: as they are decoded.
  void open(ParquetRows& source, const arrow::FieldVector& types, std::vector<int> groups, int64_t first_row) {
    constexpr int64_t kDecodedRows = 32;
    row_ = first_row;
    groups_ = std::move(groups);
    has_dictionary_ = has_dictionary(arrow::StructType(columns.given->fields()));
    joins_groups_ = !has_nested_dictionary(types);
    const bool is_unpacked_later = has_dictionary(arrow::StructType(types));
    const int64_t most = source.reader->properties().batch_size();
    rows_at_a_time_ = batch_rows(*source.reader->parquet_reader()->metadata(),
                                 is_unpacked_later ? most : std::min(kDecodedRows, most));
  }

  // The next rows: `most`, or up to the one with which a table is full, of which others take `other_bytes` each. Null
  // at the end.
  std::shared_ptr<arrow::RecordBatch> next(ParquetRows& source, int64_t most, int64_t other_bytes) {
    arrow::RecordBatchVector parts;
    int64_t bytes_left = kTableBytes;
    while (most > 0 && bytes_left > 0 && (next_ < std::ssize(bytes_) || decode(source, other_bytes))) {
      parts.push_back(with_schema(take(most, bytes_left), columns.given, source.file));
      most -= parts.back()->num_rows();
      if (has_dictionary_) break;  // several would have to be made one
    }
    if (parts.empty()) return nullptr;
    return parts.size() == 1 ? parts.front() : value_of(arrow::ConcatenateRecordBatches(parts), source.file);
  }

 private:
  // The next rows of those that were decoded: `most`, or up to the one with which `left` bytes are used up.
  std::shared_ptr<arrow::RecordBatch> take(int64_t most, int64_t& left) {
    const int64_t first = next_;
    while (next_ < std::ssize(bytes_) && next_ - first < most && left > 0) left -= bytes_[static_cast<size_t>(next_++)];
    return decoded_->Slice(first, next_ - first);
  }

  bool decode(ParquetRows& source, int64_t other_bytes) {
    do {
      const std::string where = source.from(row_);
      const auto batch = guarded(where, [&] { return next_batch(source, where); });
      if (!batch) return false;
      decoded_ = checked_batch(*batch, {source.encoding, source.file, row_});
    } while (decoded_->num_rows() == 0);
    row_ += decoded_->num_rows();
    next_ = 0;
    bytes_.assign(static_cast<size_t>(decoded_->num_rows()), other_bytes);
    for (const auto& column : decoded_->columns()) add_bytes(*column, bytes_);
    return true;
  }

  std::shared_ptr<arrow::RecordBatch> next_batch(ParquetRows& source, const std::string& where) {
    source.reader->set_batch_size(rows_at_a_time_);
    if (!batches_) open_groups(source);
    auto next = batches_->Next();
    while (next.ok() && *next == nullptr && !groups_.empty()) {
      open_groups(source);
      next = batches_->Next();
    }
    if (is_bad_text(next.status())) refuse_text(source, where);
    return value_of(std::move(next), where);
  }

  void open_groups(ParquetRows& source) {
    const auto end = joins_groups_ || groups_.empty() ? groups_.end() : groups_.begin() + 1;
    at_work_ = {groups_.begin(), end};
    batches_ = value_of(source.reader->GetRecordBatchReader(at_work_, columns.leaves), source.file);
    groups_.erase(groups_.begin(), end);
  }

  static bool is_bad_text(const arrow::Status& status) {
    return !status.ok() && status.message().find("UTF8") != std::string::npos;
  }

  // Arrow checks dictionaries itself and does not say whose: the columns are read again, one by one.
  [[noreturn]] void refuse_text(ParquetRows& source, const std::string& where) const {
    std::string column;
    for (const int leaf : columns.leaves) {
      const auto alone = value_of(source.reader->GetRecordBatchReader(at_work_, {leaf}), source.file);
      auto next = alone->Next();
      while (next.ok() && *next != nullptr) next = alone->Next();
      if (!is_bad_text(next.status())) continue;
      const auto* const schema = source.reader->parquet_reader()->metadata()->schema();
      column = fmt::format(", column '{}'", printable(schema->Column(leaf)->path()->ToDotVector().front()));
      break;
    }
    fail(ErrorKind::kData,
         "{}{}: dictionary-encoded strings that are not valid UTF-8, and --encoding is for plain strings: "
         "write the column as such",
         where, column);
  }

  bool has_dictionary_ = false;
  bool joins_groups_ = true;
  int64_t rows_at_a_time_ = 1;
  std::vector<int> groups_;   // that batches_ does not have
  std::vector<int> at_work_;  // that it has
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  int64_t row_ = 0;  // the next one to decode
  std::shared_ptr<arrow::RecordBatch> decoded_;
  std::vector<int64_t> bytes_;  // of each row that was decoded
  int64_t next_ = 0;            // of these, the first that was not handed out
};

class ParquetSource final : public RowSource {
 public:
  explicit ParquetSource(const RowSourceOptions& options)
      : source_{.file = options.file.string(),
                .reader = open_parquet_reader(options.file, options.rows_per_chunk),
                .encoding = options.encoding},
        rows_per_chunk_(options.rows_per_chunk) {
    require_ok(source_.reader->GetSchema(&whole_), source_.file);
    arrow::FieldVector fields;
    for (int i = 0; i < whole_->num_fields(); ++i) {
      const auto& field = whole_->field(i);
      if (!options.columns.empty() && std::ranges::find(options.columns, field->name()) == options.columns.end())
        continue;
      const auto& of_file = source_.reader->manifest().schema_fields.at(static_cast<size_t>(i));
      const bool is_fixed = has_one_width(of_file);
      (is_fixed ? fixed_.columns : varying_.columns).add(static_cast<int>(fields.size()), of_file);
      if (is_fixed) fixed_.row_bytes += (int64_t{field->type()->bit_width()} + 7) / 8;
      fields.push_back(field);
    }
    schema_ = arrow::schema(std::move(fields), whole_->metadata());
    give_as(schema_);
  }

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  std::vector<std::string> names() const override { return whole_->field_names(); }
  std::optional<int64_t> num_rows() const override { return metadata()->num_rows(); }

  void give_as(const std::shared_ptr<arrow::Schema>& schema) override {
    given_ = schema;
    for (Columns* columns : {&fixed_.columns, &varying_.columns}) columns->give_as(*schema_, *schema);
  }

  SourceRows next() override {
    if (!is_open_) open();
    if (varying_.columns.fields.empty()) {
      const int64_t most =
          std::clamp<int64_t>(kTableBytes / std::max<int64_t>(1, fixed_.row_bytes), 1, rows_per_chunk_);
      const auto fixed = fixed_.take(source_, most);
      return fixed->num_rows() > 0 ? rows_of(fixed, nullptr) : SourceRows();
    }
    const auto varying = varying_.next(source_, rows_per_chunk_, fixed_.row_bytes);
    if (!varying) return {};
    if (fixed_.columns.fields.empty()) return rows_of(nullptr, varying);
    const auto fixed = fixed_.take(source_, varying->num_rows());
    require(fixed->num_rows() == varying->num_rows(), ErrorKind::kData, "{}: not all columns have as many rows",
            source_.file);
    return rows_of(fixed, varying);
  }

  int64_t skip(int64_t rows) override {
    for (; first_group_ < metadata()->num_row_groups(); ++first_group_) {
      const int64_t next = first_row_ + metadata()->RowGroup(first_group_)->num_rows();
      if (next > rows) break;
      first_row_ = next;
    }
    return first_row_;
  }

 private:
  std::shared_ptr<parquet::FileMetaData> metadata() const { return source_.reader->parquet_reader()->metadata(); }

  // Not before rows are read: where files are only compared their footers are enough.
  void open() {
    is_open_ = true;
    std::vector<int> groups(static_cast<size_t>(metadata()->num_row_groups() - first_group_));
    std::iota(groups.begin(), groups.end(), first_group_);
    if (!fixed_.columns.fields.empty()) fixed_.open(source_, groups, first_row_);
    arrow::FieldVector types;
    for (const int field : varying_.columns.fields) types.push_back(schema_->field(field));
    varying_.open(source_, types, std::move(groups), first_row_);
  }

  // Of columns of both kinds; one of them may be null.
  SourceRows rows_of(const std::shared_ptr<arrow::RecordBatch>& fixed,
                     const std::shared_ptr<arrow::RecordBatch>& varying) const {
    arrow::ArrayVector arrays(static_cast<size_t>(given_->num_fields()));
    const auto place = [&](const Columns& columns, const arrow::RecordBatch& batch) {
      for (int i = 0; i < batch.num_columns(); ++i) {
        arrays[static_cast<size_t>(columns.places[static_cast<size_t>(i)])] = batch.column(i);
      }
    };
    if (fixed) place(fixed_.columns, *fixed);
    if (varying) place(varying_.columns, *varying);
    const int64_t rows = fixed ? fixed->num_rows() : varying->num_rows();
    return {.batch = arrow::RecordBatch::Make(given_, rows, std::move(arrays)), .lines = {}};
  }

  ParquetRows source_;
  int64_t rows_per_chunk_;
  std::shared_ptr<arrow::Schema> whole_;
  std::shared_ptr<arrow::Schema> schema_;  // of the columns to read
  std::shared_ptr<arrow::Schema> given_;
  FixedColumns fixed_;
  VaryingColumns varying_;
  bool is_open_ = false;
  int first_group_ = 0;    // to be read
  int64_t first_row_ = 0;  // of that one
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
