#include "strake/data/text_lists.h"

#include <arrow/api.h>

#include <memory>
#include <string_view>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/data/table_arrow.h"

namespace strake::data {
namespace {

// What is looked for in a column: its texts.
struct Texts {
  using Value = std::string;
  static constexpr const char* kMember = "text";
  static constexpr const char* kForms = "a text, a list of texts, or an object with such a member 'text'";

  static bool is_value(const arrow::DataType& type) { return is_text(type); }
  static std::string value(const arrow::Array& array, int64_t row) {
    switch (array.type_id()) {
      case arrow::Type::STRING:
        return std::string(static_cast<const arrow::StringArray&>(array).GetView(row));
      case arrow::Type::LARGE_STRING:
        return std::string(static_cast<const arrow::LargeStringArray&>(array).GetView(row));
      default:
        return std::string(static_cast<const arrow::StringViewArray&>(array).GetView(row));
    }
  }
  static bool is_value(const Json& json) { return json.is_string(); }
};

// Or where they begin.
struct Starts {
  using Value = int64_t;
  static constexpr const char* kMember = "answer_start";
  static constexpr const char* kForms =
      "an object with members 'text' and 'answer_start', which is an integer or a list of them";

  static bool is_value(const arrow::DataType& type) {
    return type.id() == arrow::Type::INT32 || type.id() == arrow::Type::INT64;
  }
  static int64_t value(const arrow::Array& array, int64_t row) {
    if (array.type_id() == arrow::Type::INT32) return static_cast<const arrow::Int32Array&>(array).Value(row);
    return static_cast<const arrow::Int64Array&>(array).Value(row);
  }
  static bool is_value(const Json& json) { return json.is_number_integer(); }
};

// What may still be inside: a list in a list is none of a row's forms, nor is an object in an object.
struct Allowed {
  bool list = true;
  bool object = true;

  Allowed in_list() const { return {.list = false, .object = object}; }
  Allowed in_object() const { return {.list = list, .object = false}; }
};

template <typename Sought>
bool is_understood(const arrow::DataType& type, Allowed allowed) {
  switch (type.id()) {
    case arrow::Type::NA:
      return true;
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
      return allowed.list && is_understood<Sought>(*type.field(0)->type(), allowed.in_list());
    case arrow::Type::STRUCT: {
      const auto& object = static_cast<const arrow::StructType&>(type);
      const auto member = object.GetFieldByName(Sought::kMember);  // null if there are two
      return allowed.object && member && is_understood<Sought>(*member->type(), allowed.in_object());
    }
    default:
      return Sought::is_value(type);
  }
}

template <typename Sought>
using Values = std::vector<typename Sought::Value>;

template <typename Sought>
void append(const arrow::Array& array, int64_t row, Values<Sought>& values);

template <typename Sought, typename ListArray>
void append_list(const arrow::Array& array, int64_t row, Values<Sought>& values) {
  const auto& lists = static_cast<const ListArray&>(array);
  for (int64_t i = lists.value_offset(row); i < lists.value_offset(row + 1); ++i) {
    append<Sought>(*lists.values(), i, values);
  }
}

// `array`: is_understood().
template <typename Sought>
void append(const arrow::Array& array, int64_t row, Values<Sought>& values) {
  if (array.IsNull(row)) return;
  switch (array.type_id()) {
    case arrow::Type::LIST:
      append_list<Sought, arrow::ListArray>(array, row, values);
      return;
    case arrow::Type::LARGE_LIST:
      append_list<Sought, arrow::LargeListArray>(array, row, values);
      return;
    case arrow::Type::STRUCT:
      append<Sought>(*static_cast<const arrow::StructArray&>(array).GetFieldByName(Sought::kMember), row, values);
      return;
    default:
      values.push_back(Sought::value(array, row));
  }
}

// False: `json` is none of the forms.
template <typename Sought>
bool append(const Json& json, Allowed allowed, Values<Sought>& values) {
  if (json.is_null()) return true;
  if (Sought::is_value(json)) {
    values.push_back(json.get<typename Sought::Value>());
    return true;
  }
  if (json.is_object()) {
    const auto member = json.find(Sought::kMember);
    return allowed.object && member != json.end() && append<Sought>(*member, allowed.in_object(), values);
  }
  if (!json.is_array() || !allowed.list) return false;
  for (const Json& item : json) {
    if (!append<Sought>(item, allowed.in_list(), values)) return false;
  }
  return true;
}

template <typename Sought>
std::vector<Values<Sought>> lists_of_json(const Table& table, const arrow::Array& array, const std::string& column) {
  std::vector<Values<Sought>> lists(static_cast<size_t>(table.num_rows()));
  const auto& strings = static_cast<const arrow::StringArray&>(array);
  for (int64_t row = 0; row < table.num_rows(); ++row) {
    if (strings.IsNull(row)) continue;
    if (append<Sought>(json_of(strings, row, table), {}, lists[static_cast<size_t>(row)])) continue;
    fail(ErrorKind::kData, "{}: column '{}' has {}, expected {}", table.where(row), printable(column),
         printable(strings.GetView(row)), Sought::kForms);
  }
  return lists;
}

template <typename Sought>
std::vector<Values<Sought>> lists_of(const Table& table, const std::string& column) {
  const Table::Content& content = table.content();
  const int index = column_index(*content.batch->schema(), column, content.file);
  const arrow::Field& field = *content.batch->schema()->field(index);
  const std::shared_ptr<arrow::Array> array = content.batch->column(index);
  if (is_json(field)) return lists_of_json<Sought>(table, *array, column);
  require(is_understood<Sought>(*array->type(), {}), ErrorKind::kData, "{}: column '{}' has the type {}, expected {}",
          content.file, printable(column), printable(array->type()->ToString(), 200), Sought::kForms);
  std::vector<Values<Sought>> lists(static_cast<size_t>(table.num_rows()));
  for (int64_t row = 0; row < table.num_rows(); ++row) append<Sought>(*array, row, lists[static_cast<size_t>(row)]);
  return lists;
}

bool holds_categories(const Table& table, const std::string& column) {
  const Table::Content& content = table.content();
  const int index = column_index(*content.batch->schema(), column, content.file);
  return content.batch->column(index)->type_id() == arrow::Type::DICTIONARY;
}

}  // namespace

std::vector<std::vector<std::string>> text_lists(const Table& table, const std::string& column) {
  if (!holds_categories(table, column)) return lists_of<Texts>(table, column);
  std::vector<std::vector<std::string>> lists(static_cast<size_t>(table.num_rows()));
  const TextColumn texts = table.text(column);
  for (int64_t row = 0; row < table.num_rows(); ++row) {
    if (!texts.is_null(row)) lists[static_cast<size_t>(row)].emplace_back(texts[row]);
  }
  return lists;
}

std::vector<std::vector<PlacedText>> placed_texts(const Table& table, const std::string& column) {
  std::vector<Values<Starts>> starts = lists_of<Starts>(table, column);
  std::vector<Values<Texts>> texts = lists_of<Texts>(table, column);
  std::vector<std::vector<PlacedText>> placed(texts.size());
  for (size_t row = 0; row < texts.size(); ++row) {
    const auto fail_at = [&](const std::string& what) {
      fail(ErrorKind::kData, "{}: column '{}' has {}", table.where(static_cast<int64_t>(row)), printable(column), what);
    };
    if (texts[row].size() != starts[row].size()) {
      fail_at(fmt::format("{} of 'text' and {} of 'answer_start'", texts[row].size(), starts[row].size()));
    }
    for (size_t i = 0; i < texts[row].size(); ++i) {
      if (starts[row][i] < 0) fail_at(fmt::format("the answer_start {}", starts[row][i]));
      placed[row].push_back({std::move(texts[row][i]), starts[row][i]});
    }
  }
  return placed;
}

}  // namespace strake::data
