#include "strake/data/text_lists.h"

#include <arrow/api.h>

#include <memory>
#include <string_view>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/data/table_arrow.h"

namespace strake::data {
namespace {

constexpr const char* kMember = "text";
constexpr const char* kTextForms = "a text, a list of texts, or an object with such a member 'text'";

// What may still be inside: a list in a list is none of a row's forms, nor is an object in an object.
struct Allowed {
  bool list = true;
  bool object = true;

  Allowed in_list() const { return {.list = false, .object = object}; }
  Allowed in_object() const { return {.list = list, .object = false}; }
};

bool is_understood(const arrow::DataType& type, Allowed allowed) {
  switch (type.id()) {
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::NA:
      return true;
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
      return allowed.list && is_understood(*type.field(0)->type(), allowed.in_list());
    case arrow::Type::STRUCT: {
      const auto member = static_cast<const arrow::StructType&>(type).GetFieldByName(kMember);  // null if there are two
      return allowed.object && member && is_understood(*member->type(), allowed.in_object());
    }
    default:
      return false;
  }
}

void append(const arrow::Array& array, int64_t row, std::vector<std::string>& texts);

template <typename ListArray>
void append_list(const arrow::Array& array, int64_t row, std::vector<std::string>& texts) {
  const auto& lists = static_cast<const ListArray&>(array);
  for (int64_t i = lists.value_offset(row); i < lists.value_offset(row + 1); ++i) append(*lists.values(), i, texts);
}

// `array`: is_understood().
void append(const arrow::Array& array, int64_t row, std::vector<std::string>& texts) {
  if (array.IsNull(row)) return;
  switch (array.type_id()) {
    case arrow::Type::STRING:
      texts.emplace_back(static_cast<const arrow::StringArray&>(array).GetView(row));
      return;
    case arrow::Type::LARGE_STRING:
      texts.emplace_back(static_cast<const arrow::LargeStringArray&>(array).GetView(row));
      return;
    case arrow::Type::STRING_VIEW:
      texts.emplace_back(static_cast<const arrow::StringViewArray&>(array).GetView(row));
      return;
    case arrow::Type::LIST:
      append_list<arrow::ListArray>(array, row, texts);
      return;
    case arrow::Type::LARGE_LIST:
      append_list<arrow::LargeListArray>(array, row, texts);
      return;
    default:
      append(*static_cast<const arrow::StructArray&>(array).GetFieldByName(kMember), row, texts);
  }
}

// False: `value` is none of the forms.
bool append(const Json& value, Allowed allowed, std::vector<std::string>& texts) {
  if (value.is_null()) return true;
  if (value.is_string()) {
    texts.push_back(value.get<std::string>());
    return true;
  }
  if (value.is_object()) {
    const auto member = value.find(kMember);
    return allowed.object && member != value.end() && append(*member, allowed.in_object(), texts);
  }
  if (!value.is_array() || !allowed.list) return false;
  for (const Json& item : value) {
    if (!append(item, allowed.in_list(), texts)) return false;
  }
  return true;
}

std::vector<std::vector<std::string>> text_lists_of_json(const Table& table, const arrow::Array& array,
                                                         const std::string& column) {
  std::vector<std::vector<std::string>> lists(static_cast<size_t>(table.num_rows()));
  const auto& strings = static_cast<const arrow::StringArray&>(array);
  for (int64_t row = 0; row < table.num_rows(); ++row) {
    if (strings.IsNull(row)) continue;
    const std::string_view json = strings.GetView(row);
    const bool is_understood = append(parse_json(json, table.where(row)), {}, lists[static_cast<size_t>(row)]);
    require(is_understood, ErrorKind::kData, "{}: column '{}' has {}, expected {}", table.where(row), printable(column),
            printable(json), kTextForms);
  }
  return lists;
}

}  // namespace

std::vector<std::vector<std::string>> text_lists(const Table& table, const std::string& column) {
  const Table::Content& content = table.content();
  const int index = column_index(*content.batch->schema(), column, content.file);
  const arrow::Field& field = *content.batch->schema()->field(index);
  const std::shared_ptr<arrow::Array> array = content.batch->column(index);
  if (is_json(field)) return text_lists_of_json(table, *array, column);

  std::vector<std::vector<std::string>> lists(static_cast<size_t>(table.num_rows()));
  if (array->type_id() == arrow::Type::DICTIONARY) {
    const TextColumn texts = table.text(column);
    for (int64_t row = 0; row < table.num_rows(); ++row) {
      if (!texts.is_null(row)) lists[static_cast<size_t>(row)].emplace_back(texts[row]);
    }
    return lists;
  }
  require(is_understood(*array->type(), {}), ErrorKind::kData, "{}: column '{}' has the type {}, expected {}",
          content.file, printable(column), printable(array->type()->ToString(), 200), kTextForms);
  for (int64_t row = 0; row < table.num_rows(); ++row) append(*array, row, lists[static_cast<size_t>(row)]);
  return lists;
}

}  // namespace strake::data
