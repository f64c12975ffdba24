#include "strake/data/checked_batch_arrow.h"

#include <arrow/api.h>

#include <algorithm>
#include <utility>

#include "strake/data/status_arrow.h"

namespace strake::data {
namespace {

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
void require_utf8(const arrow::Array& array, const std::string& column, const BatchOrigin& origin) {
  const auto& strings = static_cast<const ArrayType&>(array);
  for (int64_t i = 0; i < array.length(); ++i) {
    if (strings.IsNull(i)) continue;
    const std::string_view text = strings.GetView(i);
    const size_t valid = check_utf8(text).valid;
    require(valid == text.size(), ErrorKind::kData, "{}, row {}, column '{}', byte offset {} of the value: {}",
            origin.file, origin.first_row + i, printable(column), valid,
            describe_bad_byte(static_cast<unsigned char>(text[std::min(valid, text.size() - 1)]), origin.encoding));
  }
}

// The same array as bytes: the full validation of string arrays also refuses bad UTF-8, but without saying where.
std::shared_ptr<arrow::Array> as_binary(const arrow::Array& array) {
  auto data = array.data()->Copy();
  data->type = array.type_id() == arrow::Type::STRING ? arrow::binary() : arrow::large_binary();
  return arrow::MakeArray(data);
}

std::shared_ptr<arrow::Array> with_encoding(const std::shared_ptr<arrow::Array>& array, const std::string& column,
                                            const BatchOrigin& origin) {
  const bool large = array->type_id() == arrow::Type::LARGE_STRING;
  const auto& [encoding, file, first_row] = origin;
  if (encoding.value_or(TextEncoding::kUtf8) == TextEncoding::kUtf8) {
    large ? require_utf8<arrow::LargeStringArray>(*array, column, origin)
          : require_utf8<arrow::StringArray>(*array, column, origin);
    return array;
  }
  return large ? decoded<arrow::LargeStringArray, arrow::LargeStringBuilder>(*array, *encoding, file, first_row)
               : decoded<arrow::StringArray, arrow::StringBuilder>(*array, *encoding, file, first_row);
}

}  // namespace

std::shared_ptr<arrow::RecordBatch> checked_batch(const arrow::RecordBatch& batch, const BatchOrigin& origin) {
  require_ok(batch.Validate(), origin.file);
  arrow::ArrayVector columns;
  for (int i = 0; i < batch.num_columns(); ++i) {
    std::shared_ptr<arrow::Array> array = batch.column(i);
    const arrow::Type::type id = array->type_id();
    if (id == arrow::Type::STRING || id == arrow::Type::LARGE_STRING) {
      require_ok(as_binary(*array)->ValidateFull(), origin.file);
      array = with_encoding(array, batch.column_name(i), origin);
    } else {
      require_ok(array->ValidateFull(), origin.file);
    }
    columns.push_back(std::move(array));
  }
  return arrow::RecordBatch::Make(batch.schema(), batch.num_rows(), std::move(columns));
}

}  // namespace strake::data
