#include "strake/data/table.h"

#include <arrow/api.h>
#include <arrow/compute/api.h>
#include <arrow/util/io_util.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "strake/core/nearest_name.h"
#include "strake/data/number_text.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"

namespace strake::data {
namespace {

template <typename ArrayType>
std::vector<std::string_view> views_of(const arrow::Array& array) {
  const auto& strings = static_cast<const ArrayType&>(array);
  std::vector<std::string_view> views(static_cast<size_t>(array.length()));
  for (int64_t i = 0; i < array.length(); ++i) {
    if (strings.IsValid(i)) views[static_cast<size_t>(i)] = strings.GetView(i);
  }
  return views;
}

std::vector<std::string_view> text_views(const arrow::Array& array) {
  switch (array.type_id()) {
    case arrow::Type::LARGE_STRING:
      return views_of<arrow::LargeStringArray>(array);
    case arrow::Type::STRING_VIEW:
      return views_of<arrow::StringViewArray>(array);
    default:
      return views_of<arrow::StringArray>(array);
  }
}

std::vector<char> nulls_of(const arrow::Array& array) {
  std::vector<char> nulls(static_cast<size_t>(array.length()));
  for (int64_t i = 0; i < array.length(); ++i) nulls[static_cast<size_t>(i)] = array.IsNull(i) ? 1 : 0;
  return nulls;
}

// A column of only nulls has no type of its own.
std::shared_ptr<arrow::Array> null_as_text(const std::shared_ptr<arrow::Array>& array, const std::string& file) {
  return array->type_id() == arrow::Type::NA ? cast(array, arrow::utf8(), file) : array;
}

template <typename ArrayType, typename Value>
std::vector<Value> values_of(const arrow::Array& array) {
  const auto& typed = static_cast<const ArrayType&>(array);
  std::vector<Value> values(static_cast<size_t>(array.length()));
  for (int64_t i = 0; i < array.length(); ++i) {
    if (typed.IsValid(i)) values[static_cast<size_t>(i)] = static_cast<Value>(typed.Value(i));
  }
  return values;
}

std::string type_name(const arrow::Field& field) {
  return is_json(field) ? "nested JSON values" : "the type " + field.type()->ToString();
}

}  // namespace

std::shared_ptr<arrow::Array> unpacked(const std::shared_ptr<arrow::Array>& array, const std::string& file) {
  if (array->type_id() == arrow::Type::EXTENSION) {
    return unpacked(static_cast<const arrow::ExtensionArray&>(*array).storage(), file);
  }
  if (array->type_id() != arrow::Type::DICTIONARY) return array;
  const auto& type = static_cast<const arrow::DictionaryType&>(*array->type());
  if (type.value_type()->id() != arrow::Type::STRING_VIEW) return cast(array, type.value_type(), file);
  // Arrow unpacks no views.
  const auto& dictionary = static_cast<const arrow::DictionaryArray&>(*array);
  const auto values = cast(dictionary.dictionary(), arrow::utf8(), file);
  return cast(std::make_shared<arrow::DictionaryArray>(arrow::dictionary(type.index_type(), arrow::utf8()),
                                                       dictionary.indices(), values),
              arrow::utf8(), file);
}

std::shared_ptr<arrow::Array> cast(const std::shared_ptr<arrow::Array>& array,
                                   const std::shared_ptr<arrow::DataType>& type, const std::string& file) {
  static const arrow::Status kInitialized = arrow::compute::Initialize();
  require_ok(kInitialized, file);
  const arrow::Datum result = value_of(arrow::compute::Cast(arrow::Datum(array), type), file);
  return result.make_array();
}

std::shared_ptr<arrow::RecordBatch> empty_batch(const std::shared_ptr<arrow::Schema>& schema, const std::string& file) {
  arrow::ArrayVector columns;
  for (const auto& field : schema->fields()) {
    columns.push_back(value_of(arrow::MakeArrayOfNull(field->type(), /*length=*/0), file));
  }
  return arrow::RecordBatch::Make(schema, /*num_rows=*/0, std::move(columns));
}

bool is_text(const arrow::DataType& type) {
  return type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING ||
         type.id() == arrow::Type::STRING_VIEW;
}

bool is_any_list(const arrow::DataType& type) {
  return type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST ||
         type.id() == arrow::Type::FIXED_SIZE_LIST;
}

bool is_json(const arrow::Field& field) {
  return field.type()->id() == arrow::Type::STRING && field.HasMetadata() && field.metadata()->Contains(kJsonFieldKey);
}

Json json_of(const arrow::Array& array, int64_t row, const Table& table) {
  try {
    return parse_json(static_cast<const arrow::StringArray&>(array).GetView(row), table.where(row));
  } catch (const Error& error) {
    fail(ErrorKind::kData, "{}", error.what());
  }
}

namespace {

// "malloc of size 448 failed": not what a pool with a limit refuses, which a damaged file may have asked for.
bool is_refused_by_allocator(const arrow::Status& status) {
  return status.IsOutOfMemory() && status.message().find("alloc of size") != std::string::npos;
}

}  // namespace

ErrorKind kind_of(const arrow::Status& status) {
  if (arrow::internal::ErrnoFromStatus(status) != 0) return ErrorKind::kIo;
  return is_refused_by_allocator(status) ? ErrorKind::kUsage : ErrorKind::kData;
}

std::string text_of(const arrow::Status& status) {
  const int number = arrow::internal::ErrnoFromStatus(status);
  const std::string text = printable(status.message(), 300);
  if (is_refused_by_allocator(status)) return fmt::format("there is not enough memory ({})", text);
  return number == 0 ? text : fmt::format("{}: {}", text, std::strerror(number));
}

int column_index(const arrow::Schema& schema, const std::string& name, const std::string& file) {
  const std::vector<int> found = schema.GetAllFieldIndices(name);
  if (found.size() == 1) return found.front();
  const std::vector<std::string> names = schema.field_names();
  require(found.empty(), ErrorKind::kData, "{}: column '{}' occurs {} times", file, printable(name), found.size());
  require(!names.empty(), ErrorKind::kData, "{}: there is no column '{}', nor any other", file, printable(name));
  constexpr size_t kLongestList = 500;
  fail(ErrorKind::kData, "{}: there is no column '{}'; the columns are {}{}", file, printable(name),
       printable(fmt::format("{}", fmt::join(names, ", ")), kLongestList), did_you_mean(name, names));
}

int64_t Table::num_rows() const { return content_->batch->num_rows(); }
int64_t Table::first_row() const { return content_->first_row; }
std::vector<std::string> Table::column_names() const { return content_->batch->schema()->field_names(); }

std::string Table::where(int64_t row) const {
  std::string result = fmt::format("{}, row {}", content_->file, content_->first_row_in_file + row);
  if (!content_->lines.empty()) result += fmt::format(", line {}", content_->lines.at(static_cast<size_t>(row)));
  return result;
}

Table Table::select(const std::vector<std::string>& names) const {
  std::vector<int> indices;
  for (const std::string& name : names) {
    indices.push_back(column_index(*content_->batch->schema(), name, content_->file));
  }
  auto content = std::make_shared<Content>(*content_);
  content->batch = value_of(content_->batch->SelectColumns(indices), content_->file);
  return Table(std::move(content));
}

Table Table::slice(int64_t begin, int64_t end) const {
  auto content = std::make_shared<Content>(*content_);
  content->batch = content_->batch->Slice(begin, end - begin);
  content->first_row += begin;
  content->first_row_in_file += begin;
  if (!content->lines.empty()) content->lines = {content_->lines.begin() + begin, content_->lines.begin() + end};
  return Table(std::move(content));
}

TextColumn Table::text(const std::string& name) const {
  const arrow::RecordBatch& batch = *content_->batch;
  const int index = column_index(*batch.schema(), name, content_->file);
  const arrow::Field& field = *batch.schema()->field(index);
  const auto array = null_as_text(unpacked(batch.column(index), content_->file), content_->file);
  require(is_text(*array->type()) && !is_json(field), ErrorKind::kData,
          "{}: column '{}' has {}; a text column must hold strings", content_->file, printable(name), type_name(field));
  TextColumn column;
  column.values_ = text_views(*array);
  column.nulls_ = nulls_of(*array);
  column.owner_ = array;
  return column;
}

class LabelColumnBuilder {
 public:
  static void fill(LabelColumn& column, const arrow::Array& array) {
    column.nulls_ = nulls_of(array);
    switch (array.type_id()) {
      case arrow::Type::BOOL:
        column.kind_ = LabelKind::kBool;
        column.integers_ = values_of<arrow::BooleanArray, int64_t>(array);
        return;
      case arrow::Type::INT64:
        column.kind_ = LabelKind::kInteger;
        column.integers_ = values_of<arrow::Int64Array, int64_t>(array);
        return;
      case arrow::Type::FLOAT:
        column.single_precision_ = true;
        column.kind_ = LabelKind::kNumber;
        column.numbers_ = values_of<arrow::FloatArray, double>(array);
        return;
      case arrow::Type::DOUBLE:
        column.kind_ = LabelKind::kNumber;
        column.numbers_ = values_of<arrow::DoubleArray, double>(array);
        return;
      default:
        column.kind_ = LabelKind::kText;
        column.texts_ = text_views(array);
    }
  }
};

LabelColumn Table::labels(const std::string& name) const {
  const arrow::RecordBatch& batch = *content_->batch;
  const int index = column_index(*batch.schema(), name, content_->file);
  const arrow::Field& field = *batch.schema()->field(index);
  auto array = null_as_text(unpacked(batch.column(index), content_->file), content_->file);
  const arrow::Type::type id = array->type_id();
  const bool known =
      arrow::is_integer(id) || arrow::is_floating(id) || id == arrow::Type::BOOL || is_text(*array->type());
  require(known && !is_json(field), ErrorKind::kData,
          "{}: column '{}' has {}; labels must be strings, booleans, integers or floating point numbers",
          content_->file, printable(name), type_name(field));
  if (arrow::is_integer(id)) array = cast(array, arrow::int64(), content_->file);
  if (id == arrow::Type::HALF_FLOAT) array = cast(array, arrow::float32(), content_->file);
  LabelColumn column;
  column.name_ = name;
  column.table_ = std::make_shared<Table>(*this);
  column.owner_ = array;
  LabelColumnBuilder::fill(column, *array);
  return column;
}

std::string LabelColumn::text(int64_t row) const {
  const auto i = static_cast<size_t>(row);
  if (is_null(row)) return "";
  switch (kind_) {
    case LabelKind::kText:
      return std::string(texts_[i]);
    case LabelKind::kBool:
      return integers_[i] != 0 ? "true" : "false";
    case LabelKind::kInteger:
      return fmt::format("{}", integers_[i]);
    case LabelKind::kNumber:
      return single_precision_ ? fmt::format("{}", static_cast<float>(numbers_[i])) : fmt::format("{}", numbers_[i]);
  }
  return "";
}

void LabelColumn::refuse(int64_t row, std::string_view expected) const {
  fail(ErrorKind::kData, "{}: column '{}' has {}, expected {}", table_->where(row), printable(name_),
       is_null(row) ? "no value" : "'" + printable(text(row)) + "'", expected);
}

std::optional<double> parse_number(std::string_view text) {
  text = plain_number(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

double LabelColumn::number(int64_t row) const {
  constexpr std::string_view kExpected = "a finite number";
  const auto i = static_cast<size_t>(row);
  if (is_null(row)) refuse(row, kExpected);
  if (kind_ == LabelKind::kBool || kind_ == LabelKind::kInteger) return static_cast<double>(integers_[i]);
  double value = 0;
  if (kind_ == LabelKind::kNumber) {
    value = numbers_[i];
  } else {
    const std::optional<double> number = parse_number(texts_[i]);
    if (!number) refuse(row, kExpected);
    value = *number;
  }
  if (!std::isfinite(value)) refuse(row, kExpected);
  return value;
}

}  // namespace strake::data
