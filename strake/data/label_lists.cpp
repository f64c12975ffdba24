#include "strake/data/label_lists.h"

#include <arrow/api.h>

#include <memory>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/data/table_arrow.h"

namespace strake::data {
namespace {

using Lists = std::vector<std::vector<std::string>>;

constexpr const char* kLabelList = "a list of strings, booleans or integers";

struct Column {
  std::shared_ptr<arrow::Array> array;
  bool is_json;
};

Column find_column(const Table& table, const std::string& name) {
  const Table::Content& content = table.content();
  const int index = column_index(*content.batch->schema(), name, content.file);
  return {content.batch->column(index), is_json(*content.batch->schema()->field(index))};
}

[[noreturn]] void refuse(const Table& table, int64_t row, const std::string& column, std::string_view found) {
  fail(ErrorKind::kData, "{}: column '{}' has {}, expected {}", table.where(row), printable(column), found, kLabelList);
}

std::string text_of(const Json& label) { return label.is_string() ? label.get<std::string>() : label.dump(); }

std::vector<std::string> list_of_json(const Json& value, const Table& table, int64_t row, const std::string& column) {
  if (!value.is_array()) refuse(table, row, column, printable(value.dump()));
  std::vector<std::string> list;
  for (const Json& label : value) {
    const bool is_label = label.is_string() || label.is_boolean() || label.is_number_integer();
    if (!is_label) refuse(table, row, column, printable(value.dump()));
    list.push_back(text_of(label));
  }
  return list;
}

Lists label_lists_of_json(const Table& table, const arrow::Array& array, const std::string& column) {
  const auto& strings = static_cast<const arrow::StringArray&>(array);
  Lists lists;
  for (int64_t row = 0; row < table.num_rows(); ++row) {
    if (strings.IsNull(row)) refuse(table, row, column, "null");
    lists.push_back(list_of_json(json_of(strings, row, table), table, row, column));
  }
  return lists;
}

// All values of the lists, as a column of their own.
LabelColumn values_of(const Table& table, const std::shared_ptr<arrow::Array>& values, const std::string& column) {
  auto content = std::make_shared<Table::Content>();
  content->batch =
      arrow::RecordBatch::Make(arrow::schema({arrow::field(column, values->type())}), values->length(), {values});
  content->file = table.content().file;
  try {
    return Table(std::move(content)).labels(column);
  } catch (Error& error) {
    error.add_context(fmt::format("in the lists of column '{}'", printable(column)));
    throw;
  }
}

template <typename ListArray>
Lists lists_of(const Table& table, const arrow::Array& array, const std::string& column) {
  const auto& arrays = static_cast<const ListArray&>(array);
  Lists lists;
  if (array.length() == 0) return lists;
  // The table may be a part of what came from the file at once.
  const int64_t first = arrays.value_offset(0);
  const LabelColumn values =
      values_of(table, arrays.values()->Slice(first, arrays.value_offset(array.length()) - first), column);
  for (int64_t row = 0; row < table.num_rows(); ++row) {
    if (arrays.IsNull(row)) refuse(table, row, column, "null");
    std::vector<std::string>& list = lists.emplace_back();
    for (int64_t i = arrays.value_offset(row); i < arrays.value_offset(row + 1); ++i) {
      if (values.is_null(i - first)) refuse(table, row, column, "a list with null");
      list.push_back(values.text(i - first));
    }
  }
  return lists;
}

bool is_label(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY) {
    return is_label(*static_cast<const arrow::DictionaryType&>(type).value_type());
  }
  return is_text(type) || arrow::is_integer(type.id()) || type.id() == arrow::Type::BOOL ||
         type.id() == arrow::Type::NA;
}

std::shared_ptr<arrow::Array> of_any_length(const std::shared_ptr<arrow::Array>& array, const std::string& file) {
  if (array->type_id() != arrow::Type::FIXED_SIZE_LIST) return array;
  return cast(array, arrow::list(array->type()->field(0)->type()), file);
}

}  // namespace

bool holds_lists(const Table& table, const std::string& column) {
  const auto [array, is_json] = find_column(table, column);
  const arrow::DataType& type = *array->type();
  const bool is_view = type.id() == arrow::Type::LIST_VIEW || type.id() == arrow::Type::LARGE_LIST_VIEW;
  require(!is_view, ErrorKind::kData,
          "{}: column '{}' has the type {}; of lists, list, large_list and fixed_size_list are read",
          table.content().file, printable(column), printable(type.ToString(), 200));
  return is_json || is_any_list(type);
}

Lists label_lists(const Table& table, const std::string& column) {
  const auto [array, is_json] = find_column(table, column);
  if (is_json) return label_lists_of_json(table, *array, column);
  const arrow::DataType& type = *array->type();
  require(is_any_list(type) && is_label(*type.field(0)->type()), ErrorKind::kData,
          "{}: column '{}' has the type {}, expected {}", table.content().file, printable(column),
          printable(type.ToString(), 200), kLabelList);
  const auto lists = of_any_length(array, table.content().file);
  return lists->type_id() == arrow::Type::LIST ? lists_of<arrow::ListArray>(table, *lists, column)
                                               : lists_of<arrow::LargeListArray>(table, *lists, column);
}

}  // namespace strake::data
