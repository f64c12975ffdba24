#include <arrow/api.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/byte_size.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/schema.h>
#include <parquet/arrow/writer.h>

#include <optional>

#include "strake/core/file.h"
#include "strake/data/column_buffers.h"
#include "strake/data/parquet_file_arrow.h"
#include "strake/data/status_arrow.h"

namespace strake::data {
namespace {

// Arrow's writer on top of AtomicFile. The first Error is kept, because Arrow would flatten it to a string.
class AtomicFileStream final : public arrow::io::OutputStream {
 public:
  explicit AtomicFileStream(const std::filesystem::path& path) : file_(path) {}

  arrow::Status Write(const void* data, int64_t bytes) override {
    try {
      file_.write(data, static_cast<uint64_t>(bytes));
    } catch (const Error& error) {
      if (!error_) error_ = error;
      return arrow::Status::IOError(error.what());
    }
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Tell() const override { return static_cast<int64_t>(sum().bytes); }
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }

  void commit() { file_.commit(); }
  const FileSum& sum() const { return file_.sum(); }
  const std::optional<Error>& error() const { return error_; }

 private:
  AtomicFile file_;
  bool closed_ = false;
  std::optional<Error> error_;
};

constexpr int64_t kLargeDictionary = int64_t{1} << 20;  // bytes

// Of the dictionaries in a column.
int64_t dictionary_bytes(const arrow::ArrayData& column, const std::string& name) {
  int64_t bytes = 0;
  if (column.dictionary) bytes += value_of(arrow::util::ReferencedBufferSize(*column.dictionary), name);
  for (const auto& child : column.child_data) bytes += dictionary_bytes(*child, name);
  return bytes;
}

// What is kept of a batch until its row group is complete. Where rows share a dictionary, each counts its part.
int64_t group_bytes_of(const arrow::RecordBatch& batch, const std::string& name) {
  int64_t bytes = 0;
  for (const auto& column : batch.column_data()) {
    bytes += value_of(arrow::util::ReferencedBufferSize(*column), name);
    if (!column->dictionary || column->dictionary->length == 0) continue;
    const int64_t whole = dictionary_bytes(*column, name);
    bytes += whole / column->dictionary->length * column->length - whole;
  }
  return bytes;
}

// Encoders of dictionaries keep what they have seen, of every column at once: not of real numbers, which seldom occur
// twice, nor of columns that bring a large dictionary, which every row group would have as a whole; and less of each
// column where there are many.
std::shared_ptr<parquet::WriterProperties> writer_properties(const arrow::RecordBatch& batch, int64_t rows_per_group,
                                                             const std::string& name) {
  const arrow::Schema& schema = *batch.schema();
  parquet::WriterProperties::Builder builder;
  builder.compression(parquet::Compression::ZSTD)
      ->max_row_group_length(rows_per_group)
      ->enable_page_checksum();  // readers find pages that changed on their way
  std::shared_ptr<parquet::SchemaDescriptor> columns;
  require_ok(parquet::arrow::ToParquetSchema(&schema, *parquet::default_writer_properties(), &columns), name);
  builder.dictionary_pagesize_limit(column_buffer(columns->num_columns()));
  for (int i = 0; i < columns->num_columns(); ++i) {
    const parquet::Type::type type = columns->Column(i)->physical_type();
    const arrow::ArrayData& field = *batch.column_data(columns->group_node()->FieldIndex(*columns->GetColumnRoot(i)));
    const bool is_real = type == parquet::Type::FLOAT || type == parquet::Type::DOUBLE;
    if (is_real || dictionary_bytes(field, name) > kLargeDictionary) {
      builder.disable_dictionary(columns->Column(i)->path());
    }
  }
  return builder.build();
}

}  // namespace

struct ParquetOutput::State {
  std::string name;
  ParquetOutputOptions options;
  std::shared_ptr<AtomicFileStream> stream;
  std::shared_ptr<arrow::Schema> schema;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
  int64_t group_rows = 0;
  int64_t group_bytes = 0;

  // An error of the file itself first, then what Arrow says.
  void require_written(const arrow::Status& status) const {
    if (status.ok()) return;
    if (stream->error()) throw Error(*stream->error());
    require_ok(status, name);
  }

  void open(const arrow::RecordBatch& batch) {
    const auto properties = writer_properties(batch, options.rows_per_group, name);
    const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    schema = batch.schema();
    auto opened =
        parquet::arrow::FileWriter::Open(*schema, arrow::default_memory_pool(), stream, properties, arrow_properties);
    require_written(opened.status());  // it writes the first bytes
    writer = value_of(std::move(opened), name);
  }

  void append(const arrow::RecordBatch& batch) {
    const int64_t bytes = group_bytes_of(batch, name);
    const bool full =
        group_rows + batch.num_rows() > options.rows_per_group || group_bytes + bytes > options.bytes_per_group;
    if (group_rows > 0 && full) {
      require_written(writer->NewBufferedRowGroup());
      group_rows = 0;
      group_bytes = 0;
    }
    require_written(writer->WriteRecordBatch(batch));
    group_rows += batch.num_rows();
    group_bytes += bytes;
  }
};

ParquetOutput::ParquetOutput(const std::filesystem::path& file, const ParquetOutputOptions& options)
    : state_(std::make_unique<State>()) {
  state_->name = file.string();
  state_->options = options;
  require(options.rows_per_group > 0 && options.bytes_per_group > 0, ErrorKind::kConfig,
          "{}: row groups of {} rows or {} bytes were asked for", state_->name, options.rows_per_group,
          options.bytes_per_group);
  state_->stream = std::make_shared<AtomicFileStream>(file);
}

ParquetOutput::~ParquetOutput() = default;

const std::string& ParquetOutput::name() const { return state_->name; }

void ParquetOutput::write(const std::shared_ptr<arrow::RecordBatch>& batch) {
  guarded(state_->name, [&] {
    if (!state_->writer) state_->open(*batch);
    require(batch->schema()->Equals(*state_->schema), ErrorKind::kInternal,
            "{}: columns change from ({}) to ({}) between writes", state_->name,
            printable(state_->schema->ToString(), 300), printable(batch->schema()->ToString(), 300));
    if (batch->num_rows() > 0) state_->append(*batch);
  });
}

FileSum ParquetOutput::finish(const std::map<std::string, std::string>& metadata) {
  require(state_->writer != nullptr, ErrorKind::kInternal, "{}: finished before anything was written", state_->name);
  guarded(state_->name, [&] {
    if (!metadata.empty()) {
      auto pairs = std::make_shared<arrow::KeyValueMetadata>();
      for (const auto& [key, value] : metadata) pairs->Append(key, value);
      state_->require_written(state_->writer->AddKeyValueMetadata(pairs));
    }
    state_->require_written(state_->writer->Close());
    state_->stream->commit();
  });
  return state_->stream->sum();
}

}  // namespace strake::data
