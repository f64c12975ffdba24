#include "strake/data/checked_batch_arrow.h"

#include <arrow/api.h>

#include <algorithm>
#include <utility>

#include "strake/core/utf8.h"
#include "strake/data/status_arrow.h"

namespace strake::data {
namespace {

// Where the strings of an array stand.
struct Strings {
  const BatchOrigin& origin;
  std::string column;
  std::string_view kind;  // "" for a column's own, else "of the dictionary", "of what is inside"

  TextEncoding encoding() const { return origin.encoding.value_or(TextEncoding::kUtf8); }
  Strings within(std::string_view part) const { return {origin, column, part}; }
  [[noreturn]] void refuse(int64_t i, size_t at, char byte) const {
    const std::string place = kind.empty() ? fmt::format("row {}, column '{}'", origin.first_row + i, printable(column))
                                           : fmt::format("rows from {} on, column '{}', value {} {}", origin.first_row,
                                                         printable(column), i, kind);
    fail(ErrorKind::kData, "{}, {}, byte offset {} of the value: {}", origin.file, place, at,
         describe_bad_byte(static_cast<unsigned char>(byte), origin.encoding));
  }
};

void require_sound(const arrow::Status& status, const Strings& strings) {
  if (!status.ok()) require_ok(status, fmt::format("{}, column '{}'", strings.origin.file, printable(strings.column)));
}

template <typename ArrayType, typename Builder>
std::shared_ptr<arrow::Array> decoded(const ArrayType& array, const Strings& strings) {
  Builder builder;
  std::string text;
  for (int64_t i = 0; i < array.length(); ++i) {
    if (array.IsNull(i)) {
      require_ok(builder.AppendNull(), strings.origin.file);
      continue;
    }
    text.clear();
    const std::string_view bytes = array.GetView(i);
    if (const auto bad = append_decoded(bytes, strings.encoding(), text)) strings.refuse(i, *bad, bytes[*bad]);
    require_ok(builder.Append(text), strings.origin.file);
  }
  return value_of(builder.Finish(), strings.origin.file);
}

template <typename ArrayType>
void require_utf8(const ArrayType& array, const Strings& strings) {
  for (int64_t i = 0; i < array.length(); ++i) {
    if (array.IsNull(i)) continue;
    const std::string_view text = array.GetView(i);
    const size_t valid = check_utf8(text).valid;
    if (valid < text.size()) strings.refuse(i, valid, text[valid]);
  }
}

// The same array as bytes: the full validation of string arrays also refuses bad UTF-8, but without saying where.
std::shared_ptr<arrow::Array> as_binary(const arrow::Array& array, const std::shared_ptr<arrow::DataType>& type) {
  auto data = array.data()->Copy();
  data->type = type;
  return arrow::MakeArray(data);
}

template <typename ArrayType, typename Builder>
std::shared_ptr<arrow::Array> with_encoding(const std::shared_ptr<arrow::Array>& array,
                                            const std::shared_ptr<arrow::DataType>& bytes, const Strings& strings) {
  require_sound(as_binary(*array, bytes)->ValidateFull(), strings);
  const auto& typed = static_cast<const ArrayType&>(*array);
  if (strings.encoding() != TextEncoding::kUtf8) return decoded<ArrayType, Builder>(typed, strings);
  require_utf8(typed, strings);
  return array;
}

std::shared_ptr<arrow::Array> checked(const std::shared_ptr<arrow::Array>& array, const Strings& strings);

// Lists, structs and maps: their children hold more than this array's rows, if it is a slice.
std::shared_ptr<arrow::Array> checked_children(const std::shared_ptr<arrow::Array>& array, const Strings& strings) {
  auto data = array->data()->Copy();
  for (auto& child : data->child_data) {
    child = checked(arrow::MakeArray(child), strings.within("of what is inside"))->data();
  }
  std::shared_ptr<arrow::Array> result = arrow::MakeArray(data);
  require_sound(result->ValidateFull(), strings);
  return result;
}

std::shared_ptr<arrow::Array> checked(const std::shared_ptr<arrow::Array>& array, const Strings& strings) {
  switch (array->type_id()) {
    case arrow::Type::STRING:
      return with_encoding<arrow::StringArray, arrow::StringBuilder>(array, arrow::binary(), strings);
    case arrow::Type::LARGE_STRING:
      return with_encoding<arrow::LargeStringArray, arrow::LargeStringBuilder>(array, arrow::large_binary(), strings);
    case arrow::Type::STRING_VIEW:
      return with_encoding<arrow::StringViewArray, arrow::StringViewBuilder>(array, arrow::binary_view(), strings);
    case arrow::Type::DICTIONARY: {
      auto data = array->data()->Copy();
      data->dictionary = checked(arrow::MakeArray(data->dictionary), strings.within("of the dictionary"))->data();
      std::shared_ptr<arrow::Array> result = arrow::MakeArray(data);
      require_sound(result->ValidateFull(), strings);
      return result;
    }
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
    case arrow::Type::STRUCT:
    case arrow::Type::MAP:
      return checked_children(array, strings);
    default:
      require_sound(array->ValidateFull(), strings);
      return array;
  }
}

}  // namespace

std::shared_ptr<arrow::RecordBatch> checked_batch(const arrow::RecordBatch& batch, const BatchOrigin& origin) {
  const arrow::Status status = batch.Validate();
  for (int i = 0; !status.ok() && i < batch.num_columns(); ++i) {  // that one has the column's number only
    require_sound(batch.column(i)->Validate(), {origin, batch.column_name(i), ""});
  }
  require_ok(status, origin.file);
  arrow::ArrayVector columns;
  for (int i = 0; i < batch.num_columns(); ++i) {
    columns.push_back(checked(batch.column(i), {origin, batch.column_name(i), ""}));
  }
  return arrow::RecordBatch::Make(batch.schema(), batch.num_rows(), std::move(columns));
}

}  // namespace strake::data
