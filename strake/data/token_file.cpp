#include "strake/data/token_file.h"

#include <arrow/api.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "strake/core/json.h"
#include "strake/core/parse_integer.h"
#include "strake/data/length_codec.h"
#include "strake/data/parquet_file_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"
#include "strake/data/table_reader.h"

namespace strake::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kVersionKey = "strake.format_version";
constexpr const char* kTokenizerKey = "strake.tokenizer";
constexpr const char* kLabelNamesKey = "strake.label_names";
constexpr const char* kMaxLengthKey = "strake.max_length";
constexpr const char* kSourceKey = "strake.source";
constexpr const char* kLengthsKey = "strake.lengths";
constexpr int64_t kVersion = 1;

constexpr int64_t kRowsPerBatch = 4096;
constexpr int64_t kRowsPerGroup = int64_t{64} << 10;
constexpr int64_t kGroupBytes = int64_t{64} << 20;
// Parquet readers refuse footer strings beyond 100 MB; files with more sequences are planned from their data.
constexpr size_t kMostLengthsBytes = size_t{64} << 20;

std::shared_ptr<arrow::Schema> schema_of(const TokenFileInfo& info) {
  arrow::FieldVector fields{arrow::field("input_ids", arrow::list(arrow::int32()), /*nullable=*/false)};
  if (info.has_pairs) fields.push_back(arrow::field("second_begin", arrow::int32(), false));
  if (info.label_kind == TokenLabelKind::kClass) fields.push_back(arrow::field("label", arrow::int32(), false));
  if (info.label_kind == TokenLabelKind::kNumber) fields.push_back(arrow::field("label", arrow::float32(), false));
  if (info.label_kind == TokenLabelKind::kClasses) {
    fields.push_back(arrow::field("label", arrow::list(arrow::int32()), false));
  }
  fields.push_back(arrow::field("row", arrow::int64(), false));
  return arrow::schema(std::move(fields));
}

// Classes must have a name, unless none has.
void require_named_classes(const TokenRow& row, const std::vector<std::string>& names, const std::string& file) {
  std::span<const int32_t> classes;
  if (const auto* label = std::get_if<int32_t>(&row.label)) classes = {label, 1};
  if (const auto* labels = std::get_if<std::span<const int32_t>>(&row.label)) classes = *labels;
  for (const int32_t label : classes) {
    if (names.empty() || (label >= 0 && static_cast<size_t>(label) < names.size())) continue;
    fail(ErrorKind::kData, "{}: row {} has class {} of {}", file, row.row, label, names.size());
  }
}

// Sequences on their way into one record batch.
struct BatchBuilder {
  std::shared_ptr<arrow::Int32Builder> ids = std::make_shared<arrow::Int32Builder>();
  arrow::ListBuilder lists{arrow::default_memory_pool(), ids};
  arrow::Int32Builder second_begin;
  arrow::Int32Builder classes;
  arrow::FloatBuilder numbers;
  std::shared_ptr<arrow::Int32Builder> listed_classes = std::make_shared<arrow::Int32Builder>();
  arrow::ListBuilder class_lists{arrow::default_memory_pool(), listed_classes};
  arrow::Int64Builder rows;

  arrow::Status append(const TokenRow& row) {
    ARROW_RETURN_NOT_OK(lists.Append());
    ARROW_RETURN_NOT_OK(ids->AppendValues(row.ids.begin(), row.ids.end()));
    const auto length = static_cast<int32_t>(row.ids.size());
    ARROW_RETURN_NOT_OK(second_begin.Append(row.second_begin.value_or(length)));
    ARROW_RETURN_NOT_OK(append_label(row));
    return rows.Append(row.row);
  }

  arrow::Result<std::shared_ptr<arrow::RecordBatch>> finish(const std::shared_ptr<arrow::Schema>& schema) {
    const int64_t count = rows.length();
    arrow::ArrayVector columns;
    for (const auto& field : schema->fields()) {
      arrow::ArrayBuilder* builder = &lists;
      if (field->name() == "second_begin") builder = &second_begin;
      if (field->name() == "row") builder = &rows;
      if (field->name() == "label") builder = label_builder(field->type()->id());
      ARROW_ASSIGN_OR_RAISE(auto array, builder->Finish());
      columns.push_back(std::move(array));
    }
    second_begin.Reset();  // not a column of every file
    return arrow::RecordBatch::Make(schema, count, std::move(columns));
  }

 private:
  arrow::Status append_label(const TokenRow& row) {
    if (const auto* value = std::get_if<int32_t>(&row.label)) return classes.Append(*value);
    if (const auto* value = std::get_if<float>(&row.label)) return numbers.Append(*value);
    if (const auto* values = std::get_if<std::span<const int32_t>>(&row.label)) return append_classes(*values);
    return arrow::Status::OK();
  }
  arrow::Status append_classes(std::span<const int32_t> values) {
    ARROW_RETURN_NOT_OK(class_lists.Append());
    return listed_classes->AppendValues(values.begin(), values.end());
  }
  arrow::ArrayBuilder* label_builder(arrow::Type::type type) {
    if (type == arrow::Type::LIST) return &class_lists;
    return type == arrow::Type::INT32 ? static_cast<arrow::ArrayBuilder*>(&classes) : &numbers;
  }
};

}  // namespace

struct TokenFileWriter::State {
  State(const fs::path& file, const TokenFileInfo& file_info)
      : output(file, {.rows_per_group = kRowsPerGroup, .bytes_per_group = kGroupBytes}),
        info(file_info),
        schema(schema_of(file_info)) {}

  ParquetOutput output;
  TokenFileInfo info;
  std::shared_ptr<arrow::Schema> schema;
  BatchBuilder batch;
  std::vector<int32_t> lengths;

  void flush() { output.write(value_of(batch.finish(schema), output.name())); }
};

TokenFileWriter::TokenFileWriter(const fs::path& file, const TokenFileInfo& info)
    : state_(std::make_unique<State>(file, info)) {
  require(info.max_length > 0 && info.max_length <= std::numeric_limits<int32_t>::max(), ErrorKind::kConfig,
          "{}: max_length={} must be positive", file.string(), info.max_length);
}

TokenFileWriter::~TokenFileWriter() = default;
TokenFileWriter::TokenFileWriter(TokenFileWriter&&) noexcept = default;
TokenFileWriter& TokenFileWriter::operator=(TokenFileWriter&&) noexcept = default;

void TokenFileWriter::append(const TokenRow& row) {
  State& state = *state_;
  const std::string& name = state.output.name();
  check_token_row(row, state.info.label_kind, name);
  const auto length = static_cast<int64_t>(row.ids.size());
  require(length <= state.info.max_length, ErrorKind::kData, "{}: row {} has {} tokens, max_length is {}", name,
          row.row, length, state.info.max_length);
  require(!row.second_begin || state.info.has_pairs, ErrorKind::kData,
          "{}: row {} is a pair in a file declared without pairs", name, row.row);
  require_named_classes(row, state.info.label_names, name);
  require_ok(state.batch.append(row), name);
  state.lengths.push_back(static_cast<int32_t>(length));
  if (state.batch.rows.length() == kRowsPerBatch || state.batch.ids->length() >= kGroupBytes / 8) state.flush();
}

void TokenFileWriter::finish() {
  State& state = *state_;
  state.flush();
  std::map<std::string, std::string> metadata{{kVersionKey, fmt::format("{}", kVersion)},
                                              {kTokenizerKey, state.info.tokenizer},
                                              {kLabelNamesKey, Json(state.info.label_names).dump()},
                                              {kMaxLengthKey, fmt::format("{}", state.info.max_length)},
                                              {kSourceKey, state.info.source}};
  if (static_cast<int64_t>(state.lengths.size()) <= kMostLengths) {
    std::string lengths = encode_lengths(state.lengths);
    if (lengths.size() <= kMostLengthsBytes) metadata.emplace(kLengthsKey, std::move(lengths));
  }
  state.output.finish(metadata);
}

namespace {

using Metadata = std::shared_ptr<const arrow::KeyValueMetadata>;

std::optional<std::string> find(const Metadata& metadata, const char* key) {
  if (!metadata) return std::nullopt;
  const auto value = metadata->Get(key);
  return value.ok() ? std::optional<std::string>(*value) : std::nullopt;
}

std::string get(const Metadata& metadata, const char* key, const std::string& file) {
  auto value = find(metadata, key);
  require(value.has_value(), ErrorKind::kData,
          "{} is not a token file (its metadata has no {}); make one with `strake prepare`", file, key);
  return std::move(*value);
}

int64_t get_integer(const Metadata& metadata, const char* key, const std::string& file) {
  const std::string text = get(metadata, key, file);
  const std::optional<int64_t> value = parse_integer<int64_t>(text);
  require(value.has_value(), ErrorKind::kData, "{}: {} is '{}', not a number", file, key, printable(text));
  return *value;
}

std::vector<std::string> get_names(const Metadata& metadata, const std::string& file) {
  const std::string source = fmt::format("{}: {}", file, kLabelNamesKey);
  const Json value = Json::parse(get(metadata, kLabelNamesKey, file), nullptr, /*allow_exceptions=*/false);
  require(value.is_array(), ErrorKind::kData, "{} is not a list", source);
  std::vector<std::string> names;
  for (const Json& name : value) {
    require(name.is_string(), ErrorKind::kData, "{} has {} instead of a string", source, printable(name.dump()));
    names.push_back(name.get<std::string>());
  }
  return names;
}

void require_type(const arrow::Schema& schema, const char* name, std::initializer_list<arrow::Type::type> types,
                  const std::string& file) {
  const auto& type = *schema.field(column_index(schema, name, file))->type();
  const bool known = std::ranges::find(types, type.id()) != types.end();
  require(known, ErrorKind::kData, "{}: column '{}' of a token file has the type {}", file, name, type.ToString());
}

void require_int32_lists(const arrow::Schema& schema, const char* name, const std::string& file) {
  require_type(schema, name, {arrow::Type::LIST}, file);
  const auto& list = static_cast<const arrow::ListType&>(*schema.GetFieldByName(name)->type());
  require(list.value_type()->id() == arrow::Type::INT32, ErrorKind::kData, "{}: column '{}' holds {}, expected int32",
          file, name, list.value_type()->ToString());
}

TokenLabelKind label_kind_of(const arrow::Schema& schema, const std::string& file) {
  if (schema.GetFieldIndex("label") < 0) return TokenLabelKind::kNone;
  require_type(schema, "label", {arrow::Type::INT32, arrow::Type::FLOAT, arrow::Type::LIST}, file);
  switch (schema.GetFieldByName("label")->type()->id()) {
    case arrow::Type::INT32:
      return TokenLabelKind::kClass;
    case arrow::Type::FLOAT:
      return TokenLabelKind::kNumber;
    default:
      require_int32_lists(schema, "label", file);
      return TokenLabelKind::kClasses;
  }
}

void require_schema(const arrow::Schema& schema, const std::string& file) {
  require_int32_lists(schema, "input_ids", file);
  require_type(schema, "row", {arrow::Type::INT64}, file);
  if (schema.GetFieldIndex("second_begin") >= 0) require_type(schema, "second_begin", {arrow::Type::INT32}, file);
}

template <typename ArrayType>
const ArrayType* column(const arrow::RecordBatch& batch, const char* name) {
  return static_cast<const ArrayType*>(batch.GetColumnByName(name).get());
}

// A column of lists without nulls.
class IntLists {
 public:
  IntLists(const arrow::RecordBatch& batch, const char* name, const std::string& file)
      : lists_(column<arrow::ListArray>(batch, name)),
        values_(static_cast<const arrow::Int32Array&>(*lists_->values())) {
    require(values_.null_count() == 0, ErrorKind::kData, "{}: a row of '{}' holds null", file, name);
  }
  std::span<const int32_t> operator[](int64_t row) const {
    return {values_.raw_values() + lists_->value_offset(row), static_cast<size_t>(lists_->value_length(row))};
  }

 private:
  const arrow::ListArray* lists_;
  const arrow::Int32Array& values_;
};

// The sequences of one validated batch; whether `use` wants more.
bool hand_over(const arrow::RecordBatch& batch, const TokenFileInfo& info, const std::string& file,
               const std::function<bool(const TokenRow&)>& use) {
  for (const auto& array : batch.columns()) {
    require(array->null_count() == 0, ErrorKind::kData, "{}: a token file has null values", file);
  }
  const IntLists ids(batch, "input_ids", file);
  const auto* rows = column<arrow::Int64Array>(batch, "row");
  const auto* second = column<arrow::Int32Array>(batch, "second_begin");
  const auto* classes = info.label_kind == TokenLabelKind::kClass ? column<arrow::Int32Array>(batch, "label") : nullptr;
  const auto* numbers =
      info.label_kind == TokenLabelKind::kNumber ? column<arrow::FloatArray>(batch, "label") : nullptr;
  std::optional<IntLists> class_lists;
  if (info.label_kind == TokenLabelKind::kClasses) class_lists.emplace(batch, "label", file);
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    TokenRow row{.ids = ids[i], .row = rows->Value(i)};
    if (second != nullptr) row.second_begin = second->Value(i);
    if (classes != nullptr) row.label = classes->Value(i);
    if (numbers != nullptr) row.label = numbers->Value(i);
    if (class_lists) row.label = (*class_lists)[i];
    require(static_cast<int64_t>(row.ids.size()) <= info.max_length, ErrorKind::kData,
            "{}: row {} has {} tokens, max_length is {}", file, row.row, row.ids.size(), info.max_length);
    require_named_classes(row, info.label_names, file);
    if (!use(row)) return false;
  }
  return true;
}

Metadata metadata_of(parquet::arrow::FileReader& reader) {
  return reader.parquet_reader()->metadata()->key_value_metadata();
}

}  // namespace

TokenFileReader::TokenFileReader(const fs::path& file) : file_(file) {
  const std::string name = file.string();
  const auto reader = open_parquet_reader(file, kRowsPerBatch);
  const Metadata metadata = metadata_of(*reader);
  const int64_t version = get_integer(metadata, kVersionKey, name);
  require(version == kVersion, ErrorKind::kData,
          "{}: token file format {}, this program reads format {}; make it again with `strake prepare`", name, version,
          kVersion);
  info_.tokenizer = get(metadata, kTokenizerKey, name);
  info_.label_names = get_names(metadata, name);
  info_.max_length = get_integer(metadata, kMaxLengthKey, name);
  require(info_.max_length > 0 && info_.max_length <= std::numeric_limits<int32_t>::max(), ErrorKind::kData,
          "{}: {} is {}, not a length", name, kMaxLengthKey, info_.max_length);
  info_.source = get(metadata, kSourceKey, name);
  std::shared_ptr<arrow::Schema> schema;
  require_ok(reader->GetSchema(&schema), name);
  require_schema(*schema, name);
  info_.has_pairs = schema->GetFieldIndex("second_begin") >= 0;
  info_.label_kind = label_kind_of(*schema, name);
  num_sequences_ = reader->parquet_reader()->metadata()->num_rows();
  require(num_sequences_ >= 0, ErrorKind::kData, "{}: {} rows", name, num_sequences_);
  if (const auto lengths = find(metadata, kLengthsKey)) lengths_ = decode_lengths(*lengths, num_sequences_, name);
}

int64_t TokenFileReader::total_tokens() const { return std::reduce(lengths_.begin(), lengths_.end(), int64_t{0}); }

void TokenFileReader::for_each(const std::function<bool(const TokenRow&)>& use) const {
  const std::string name = file_.string();
  const auto reader = open_parquet_reader(file_, kRowsPerBatch);
  const auto batches = guarded(name, [&] { return value_of(reader->GetRecordBatchReader(), name); });
  int64_t done = 0;
  while (const auto batch = guarded(name, [&] { return value_of(batches->Next(), name); })) {
    require_ok(batch->ValidateFull(), name);
    require_schema(*batch->schema(), name);
    require(label_kind_of(*batch->schema(), name) == info_.label_kind, ErrorKind::kData, "{} has changed meanwhile",
            name);
    const auto* lists = column<arrow::ListArray>(*batch, "input_ids");
    for (int64_t i = 0; i < batch->num_rows() && !lengths_.empty(); ++i) {
      const auto at = static_cast<size_t>(done + i);
      require(at < lengths_.size() && lengths_[at] == lists->value_length(i), ErrorKind::kData,
              "{}: sequence {} has {} tokens, its footer says otherwise", name, done + i, lists->value_length(i));
    }
    if (!hand_over(*batch, info_, name, use)) return;
    done += batch->num_rows();
  }
  require(done == num_sequences_, ErrorKind::kData, "{}: {} sequences, its footer says {}", name, done, num_sequences_);
}

bool is_token_file(const fs::path& file) {
  return find(metadata_of(*open_parquet_reader(file, kRowsPerBatch)), kVersionKey).has_value();
}

}  // namespace strake::data
