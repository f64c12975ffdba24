#include "strake/data/text_lists.h"

#include <arrow/api.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/data/table_arrow.h"

namespace strake::data {
namespace {

// What CSV files have in the place of an object: JSON, or what Python prints.
bool is_written_object(std::string_view text) {
  if (text.starts_with("{'text':")) return true;
  if (!text.starts_with('{')) return false;
  try {
    return parse_json(text, "").contains("text");
  } catch (const Error&) {
    return false;
  }
}

// What is looked for in a column: its texts.
struct Texts {
  using Value = std::string;
  static constexpr const char* kMember = "text";
  static constexpr const char* kForms = "a text, a list of texts, or an object with such a member 'text'";
  static constexpr bool kSkipsNulls = true;  // in lists of nothing else, where nothing is beside a text

  static bool is_value(const arrow::DataType& type) { return is_text(type); }
  static std::optional<std::string> value(const arrow::Array& array, int64_t i) {
    switch (array.type_id()) {
      case arrow::Type::STRING:
        return std::string(static_cast<const arrow::StringArray&>(array).GetView(i));
      case arrow::Type::LARGE_STRING:
        return std::string(static_cast<const arrow::LargeStringArray&>(array).GetView(i));
      default:
        return std::string(static_cast<const arrow::StringViewArray&>(array).GetView(i));
    }
  }
  static bool is_value(const Json& json) { return json.is_string(); }
  static std::optional<std::string> value(const Json& json) { return json.get<std::string>(); }
  static bool is_taken(const std::string& text) { return !is_written_object(text); }
};

template <typename Integers>
std::optional<int64_t> integer_at(const arrow::Array& array, int64_t i) {
  const auto value = static_cast<const Integers&>(array).Value(i);
  return std::in_range<int64_t>(value) ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
}

// Or where they begin.
struct Starts {
  using Value = int64_t;
  static constexpr const char* kMember = "answer_start";
  static constexpr const char* kForms =
      "an object with members 'text' and 'answer_start', which is an integer or a list of them";
  static constexpr bool kSkipsNulls = false;

  static bool is_value(const arrow::DataType& type) { return arrow::is_integer(type.id()); }
  static std::optional<int64_t> value(const arrow::Array& array, int64_t i) {
    switch (array.type_id()) {
      case arrow::Type::INT8:
        return integer_at<arrow::Int8Array>(array, i);
      case arrow::Type::INT16:
        return integer_at<arrow::Int16Array>(array, i);
      case arrow::Type::INT32:
        return integer_at<arrow::Int32Array>(array, i);
      case arrow::Type::INT64:
        return integer_at<arrow::Int64Array>(array, i);
      case arrow::Type::UINT8:
        return integer_at<arrow::UInt8Array>(array, i);
      case arrow::Type::UINT16:
        return integer_at<arrow::UInt16Array>(array, i);
      case arrow::Type::UINT32:
        return integer_at<arrow::UInt32Array>(array, i);
      default:
        return integer_at<arrow::UInt64Array>(array, i);
    }
  }
  static bool is_value(const Json& json) { return json.is_number_integer(); }
  static std::optional<int64_t> value(const Json& json) {
    if (json.is_number_unsigned() && !std::in_range<int64_t>(json.get<uint64_t>())) return std::nullopt;
    return json.get<int64_t>();
  }
  static bool is_taken(int64_t) { return true; }
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
    case arrow::Type::FIXED_SIZE_LIST:
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

// Those of one row, in order.
template <typename Sought>
class RowValues {
 public:
  RowValues(const Table& table, const std::string& column, int64_t row) : table_(table), column_(column), row_(row) {}

  // `array`: is_understood().
  void append(const arrow::Array& array, int64_t i, Allowed allowed = {}) {
    if (array.IsNull(i)) {
      if (!allowed.list) refuse_null();
      return;
    }
    switch (array.type_id()) {
      case arrow::Type::LIST:
        append_list<arrow::ListArray>(array, i, allowed);
        return;
      case arrow::Type::LARGE_LIST:
        append_list<arrow::LargeListArray>(array, i, allowed);
        return;
      case arrow::Type::FIXED_SIZE_LIST:
        append_list<arrow::FixedSizeListArray>(array, i, allowed);
        return;
      case arrow::Type::STRUCT: {
        const auto member = static_cast<const arrow::StructArray&>(array).GetFieldByName(Sought::kMember);
        append(*member, i, allowed.in_object());
        return;
      }
      default: {
        auto value = Sought::value(array, i);
        if (!value) refuse_number(array.GetScalar(i).ValueOrDie()->ToString());
        add(std::move(*value), allowed);
      }
    }
  }

  // False: `json` is none of the forms.
  bool append(const Json& json, Allowed allowed = {}) {
    if (json.is_null()) {
      if (!allowed.list) refuse_null();
      return true;
    }
    if (Sought::is_value(json)) {
      auto value = Sought::value(json);
      if (!value) refuse_number(json.dump());
      add(std::move(*value), allowed);
      return true;
    }
    if (json.is_object()) {
      const auto member = json.find(Sought::kMember);
      return allowed.object && member != json.end() && append(*member, allowed.in_object());
    }
    if (!json.is_array() || !allowed.list) return false;
    const auto is_object = [](const Json& item) { return item.is_object(); };
    const bool skips_nulls = Sought::kSkipsNulls && allowed.object && std::ranges::none_of(json, is_object);
    for (const Json& item : json) {
      if (skips_nulls && item.is_null()) continue;
      if (!append(item, allowed.in_list())) return false;
    }
    return true;
  }

  void add(typename Sought::Value value, Allowed allowed = {}) {
    const bool is_alone = allowed.list && allowed.object;
    if (is_alone && !Sought::is_taken(value)) refuse_written(value);
    values_.push_back(std::move(value));
  }

  std::vector<typename Sought::Value> take() { return std::move(values_); }

 private:
  template <typename ListArray>
  void append_list(const arrow::Array& array, int64_t row, Allowed allowed) {
    const auto& lists = static_cast<const ListArray&>(array);
    const arrow::Array& items = *lists.values();
    const bool skips_nulls = Sought::kSkipsNulls && allowed.object && items.type_id() != arrow::Type::STRUCT;
    for (int64_t i = lists.value_offset(row); i < lists.value_offset(row) + lists.value_length(row); ++i) {
      if (skips_nulls && items.IsNull(i)) continue;
      append(items, i, allowed.in_list());
    }
  }

  // Texts and places are paired by their order, so that none may be left out.
  [[noreturn]] void refuse_null() const {
    fail(ErrorKind::kData, "{}: column '{}' has a list with null, expected one '{}' for each answer",
         table_.where(row_), printable(column_), Sought::kMember);
  }
  [[noreturn]] void refuse_number(const std::string& number) const {
    fail(ErrorKind::kData, "{}: column '{}' has the {} {}, expected at most {}", table_.where(row_), printable(column_),
         Sought::kMember, number, std::numeric_limits<int64_t>::max());
  }
  template <typename Value>
  [[noreturn]] void refuse_written(const Value& value) const {
    fail(ErrorKind::kData,
         "{}: column '{}' has an object written as a text, {}, expected {}, as Parquet or JSON lines hold it",
         table_.where(row_), printable(column_), printable(fmt::format("{}", value)), Sought::kForms);
  }

  const Table& table_;
  const std::string& column_;
  int64_t row_;
  std::vector<typename Sought::Value> values_;
};

template <typename Sought>
using ListsOf = std::vector<std::vector<typename Sought::Value>>;

template <typename Sought>
ListsOf<Sought> lists_of_json(const Table& table, const arrow::Array& array, const std::string& column) {
  ListsOf<Sought> lists(static_cast<size_t>(table.num_rows()));
  const auto& strings = static_cast<const arrow::StringArray&>(array);
  for (int64_t row = 0; row < table.num_rows(); ++row) {
    if (strings.IsNull(row)) continue;
    RowValues<Sought> values(table, column, row);
    if (!values.append(json_of(strings, row, table))) {
      fail(ErrorKind::kData, "{}: column '{}' has {}, expected {}", table.where(row), printable(column),
           printable(strings.GetView(row)), Sought::kForms);
    }
    lists[static_cast<size_t>(row)] = values.take();
  }
  return lists;
}

template <typename Sought>
ListsOf<Sought> lists_of(const Table& table, const std::string& column) {
  const Table::Content& content = table.content();
  const int index = column_index(*content.batch->schema(), column, content.file);
  const arrow::Field& field = *content.batch->schema()->field(index);
  const std::shared_ptr<arrow::Array> array = content.batch->column(index);
  if (is_json(field)) return lists_of_json<Sought>(table, *array, column);
  require(is_understood<Sought>(*array->type(), {}), ErrorKind::kData, "{}: column '{}' has the type {}, expected {}",
          content.file, printable(column), printable(array->type()->ToString(), 200), Sought::kForms);
  ListsOf<Sought> lists(static_cast<size_t>(table.num_rows()));
  for (int64_t row = 0; row < table.num_rows(); ++row) {
    RowValues<Sought> values(table, column, row);
    values.append(*array, row);
    lists[static_cast<size_t>(row)] = values.take();
  }
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
    RowValues<Texts> values(table, column, row);
    if (!texts.is_null(row)) values.add(std::string(texts[row]));
    lists[static_cast<size_t>(row)] = values.take();
  }
  return lists;
}

std::vector<std::vector<PlacedText>> placed_texts(const Table& table, const std::string& column) {
  const ListsOf<Starts> starts = lists_of<Starts>(table, column);
  ListsOf<Texts> texts = lists_of<Texts>(table, column);
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
