#include <arrow/api.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "strake/data/row_source_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"
#include "strake/data/table_reader.h"
#include "strake/data/text_input.h"

namespace strake::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kCellsOfChunk = size_t{4} << 20;  // of all columns, also empty ones

struct Nested {
  std::string json;
};
using Cell = std::variant<std::monostate, bool, int64_t, double, std::string, Nested>;

std::string_view type_name(const Cell& cell) {
  constexpr std::string_view kNames[] = {"null",     "a boolean",     "an integer", "a decimal number",
                                         "a string", "a nested value"};
  return kNames[cell.index()];
}

std::string as_json(const Cell& cell) {
  if (std::holds_alternative<std::monostate>(cell)) return "null";
  if (const auto* nested = std::get_if<Nested>(&cell)) return nested->json;
  if (const auto* text = std::get_if<std::string>(&cell)) return OrderedJson(*text).dump();
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&cell)) return fmt::format("{}", *number);
  return OrderedJson(std::get<double>(cell)).dump();
}

// Reads one line: an object whose scalar members go straight into cells, and whose objects and arrays become their
// text. The parser is iterative; depth is limited for those who read that text. Of members that are not among `read`
// (empty: all are) only the names are kept, and nothing is asked but that they are JSON.
class ObjectParser : public nlohmann::json_sax<OrderedJson> {
 public:
  struct Member {
    std::string name;
    Cell cell;
    bool is_read = true;
  };

  ObjectParser(std::string_view line, const std::unordered_set<std::string>& read) : line_(line), read_(read) {}

  bool null() override { return put(std::monostate()); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    return fits || !is_read_ ? put(static_cast<int64_t>(value)) : refuse_value(fmt::format("integer {}", value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!is_read_) return put(value);
    if (text.find_first_of(".eE") == std::string::npos) return refuse_value("integer " + printable(text));
    return std::isfinite(value) ? put(value) : refuse_value("number " + printable(text));
  }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return refuse("binary value"); }
  bool start_object(size_t) override { return enter('{'); }
  bool end_object() override { return leave('}'); }
  bool start_array(size_t) override { return enter('['); }
  bool end_array() override { return leave(']'); }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      if (members.size() == kMostColumns) {
        problem_of = ProblemOf::kWithin;
        return refuse(fmt::format("more than {} keys", kMostColumns));
      }
      is_read_ = read_.empty() || read_.contains(name);
      members.push_back({.name = std::move(name), .cell = std::monostate(), .is_read = is_read_});
    } else if (!is_read_) {
      return true;
    } else if (!nested_keys_.back().insert(name).second) {
      return refuse(fmt::format("key '{}' occurs twice in one object", printable(name)));
    } else {
      append(OrderedJson(name).dump() + ":");
    }
    return true;
  }
  bool parse_error(size_t position, const std::string& token, const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) return refuse_value("number " + printable(token));
    const std::string_view cause = cause_of(position, error.what());
    if (!cause.empty()) problem_of = ProblemOf::kWithin;
    return refuse(fmt::format("not valid JSON at byte {}{}", position, cause));
  }

  std::vector<Member> members;
  std::string problem;
  enum class ProblemOf { kLine, kWithin, kValue };  // kWithin: the message says all
  ProblemOf problem_of = ProblemOf::kLine;

 private:
  static constexpr int kMaxDepth = 64;

  // Python's json.dumps writes these. `position`: just behind the byte that was one too many.
  std::string_view cause_of(size_t position, std::string_view error) const {
    if (error.find("surrogate") != std::string_view::npos) {
      return ": half of a surrogate pair, expected UTF-8 or both halves";
    }
    const size_t at = std::min(std::max<size_t>(position, 1) - 1, line_.size());
    const std::string_view rest = line_.substr(at);
    if (rest.starts_with("NaN")) return ": NaN, expected null or a number";
    if (!rest.starts_with("Infinity")) return "";
    return line_.substr(0, at).ends_with('-') ? ": -Infinity, expected null or a number"
                                              : ": Infinity, expected null or a number";
  }
  bool refuse(std::string text) {
    if (problem.empty()) problem = std::move(text);
    return false;
  }
  bool refuse_value(const std::string& number) {
    problem_of = ProblemOf::kValue;
    return refuse(number + " is out of range");
  }
  bool put(Cell cell) {
    if (depth_ == 0) return refuse(fmt::format("{} instead of an object", type_name(cell)));
    if (!is_read_) return true;
    if (depth_ > 1) {
      append(as_json(cell));
    } else {
      members.back().cell = std::move(cell);
    }
    return true;
  }
  bool enter(char bracket) {
    if (depth_ == 0 && bracket == '[') return refuse("an array instead of an object");
    ++depth_;
    if (!is_read_) return true;
    if (depth_ > kMaxDepth) return refuse(fmt::format("nested deeper than {} levels", kMaxDepth));
    if (depth_ == 2) members.back().cell = Nested();
    if (depth_ > 1) {
      append(std::string(1, bracket));
      nested_keys_.emplace_back();
    }
    return true;
  }
  bool leave(char bracket) {
    if (depth_ > 1 && is_read_) {
      nested_keys_.pop_back();
      nested_text() += bracket;
    }
    --depth_;
    return true;
  }
  std::string& nested_text() { return std::get<Nested>(members.back().cell).json; }
  // A value or a key, behind a comma if another value is before it.
  void append(const std::string& text) {
    std::string& all = nested_text();
    if (!all.empty() && std::string_view("{[:").find(all.back()) == std::string_view::npos) all += ',';
    all += text;
  }

  std::string_view line_;
  const std::unordered_set<std::string>& read_;
  bool is_read_ = true;  // the member that is being parsed
  int depth_ = 0;
  std::vector<std::set<std::string>> nested_keys_;  // of each level below the first
};

// Rows of a chunk by column, with the line of each.
struct Cells {
  std::vector<std::vector<Cell>> columns;
  std::vector<int64_t> lines;
};

class JsonLinesSource final : public RowSource {
 public:
  explicit JsonLinesSource(const RowSourceOptions& options)
      : input_(TextInput(options.file, options.encoding)),
        rows_per_chunk_(options.rows_per_chunk),
        read_(options.columns.begin(), options.columns.end()),
        schema_(options.schema) {
    if (schema_) {
      for (const auto& name : schema_->field_names()) column_of(name);
    }
    first_ = read_cells();
    if (!schema_) schema_ = infer_schema(first_);
  }

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  std::vector<std::string> names() const override { return keys_; }
  void give_as(const std::shared_ptr<arrow::Schema>& schema) override { schema_ = schema; }

  // Lines are not looked into.
  int64_t skip(int64_t rows) override {
    const auto read_already = static_cast<int64_t>(first_.lines.size());
    if (rows < read_already) return 0;
    first_ = {};
    int64_t skipped = read_already;
    while (skipped < rows) {
      const auto line = input_.next();
      if (!line) break;
      if (!is_blank(*line)) ++skipped;
    }
    return skipped;
  }

  SourceRows next() override {
    Cells cells = std::exchange(first_, {});
    if (cells.lines.empty()) cells = read_cells();
    SourceRows rows;
    if (cells.lines.empty()) return rows;
    const auto count = static_cast<int64_t>(cells.lines.size());
    arrow::ArrayVector arrays;
    for (int i = 0; i < schema_->num_fields(); ++i) {
      cells.columns[static_cast<size_t>(i)].resize(cells.lines.size());
      arrays.push_back(to_array(*schema_->field(i), cells.columns[static_cast<size_t>(i)], cells.lines));
    }
    rows.batch = arrow::RecordBatch::Make(schema_, count, std::move(arrays));
    rows.lines = std::move(cells.lines);
    return rows;
  }

 private:
  static bool is_blank(std::string_view line) { return line.find_first_not_of(" \t") == std::string_view::npos; }

  [[noreturn]] void refuse(int64_t line, const std::string& problem) const {
    fail(ErrorKind::kData, "{}, line {}: {}", input_.name(), line, problem);
  }
  // Of a value or key that has no place in a column.
  [[noreturn]] void refuse_value(int64_t line, const std::string& problem) const {
    refuse(line, problem + (read_.empty() ? "; name the columns to keep, and others may hold anything" : ""));
  }

  size_t column_of(const std::string& name) {
    const auto [found, inserted] = column_of_.try_emplace(name, names_.size());
    if (inserted) names_.push_back(name);
    return found->second;
  }

  // Every column has a cell of every row, also if the key is in few of them.
  void require_few_cells(size_t rows) const {
    const bool fits = names_.size() <= kMostColumns && names_.size() * rows <= 2 * kCellsOfChunk;
    if (fits) return;
    refuse(input_.line(), fmt::format("the first {} row{} {} different keys, each of which is a column: too many", rows,
                                      rows == 1 ? " has" : "s have", names_.size()));
  }

  Cells read_cells() {
    Cells cells;
    int64_t bytes = 0;
    while (static_cast<int64_t>(cells.lines.size()) < rows_per_chunk_ && bytes < kTableBytes &&
           cells.lines.size() * names_.size() < kCellsOfChunk) {
      const auto line = input_.next();
      if (!line) break;
      if (is_blank(*line)) continue;
      cells.lines.push_back(input_.line());
      add_row(*line, cells);
      bytes += static_cast<int64_t>(line->size());
    }
    cells.columns.resize(names_.size());
    return cells;
  }

  void add_row(std::string_view line, Cells& cells) {
    ObjectParser parser(line, read_);
    if (!OrderedJson::sax_parse(line, &parser)) {
      using enum ObjectParser::ProblemOf;
      if (parser.problem_of == kValue) refuse_value(input_.line(), parser.problem);
      if (parser.problem_of == kWithin) refuse(input_.line(), parser.problem);
      refuse(input_.line(), parser.problem + "; each line must be one complete JSON object");
    }
    const size_t row = cells.lines.size() - 1;
    for (auto& [name, cell, is_read] : parser.members) {
      if (!schema_ && known_keys_.insert(name).second) keys_.push_back(name);
      if (!is_read) continue;
      if (schema_ && !column_of_.contains(name)) {
        refuse_value(input_.line(),
                     fmt::format("key '{}' does not occur in the rows before, whose keys are the columns ({})",
                                 printable(name), printable(fmt::format("{}", fmt::join(names_, ", ")), 300)));
      }
      const size_t column = column_of(name);
      if (cells.columns.size() <= column) {
        require_few_cells(row + 1);
        cells.columns.resize(column + 1);
      }
      auto& values = cells.columns[column];
      if (values.size() > row) refuse(input_.line(), fmt::format("key '{}' occurs twice", printable(name)));
      values.resize(row);
      values.push_back(std::move(cell));
    }
  }

  // A key that has been null alone has the type null.
  std::shared_ptr<arrow::Schema> infer_schema(const Cells& cells) const {
    arrow::FieldVector fields;
    for (size_t i = 0; i < names_.size(); ++i) {
      std::array<bool, std::variant_size_v<Cell>> seen{};
      for (const Cell& cell : cells.columns[i]) seen[cell.index()] = true;
      std::shared_ptr<arrow::DataType> type = arrow::null();
      std::shared_ptr<const arrow::KeyValueMetadata> metadata;
      if (seen[Cell(Nested()).index()]) {
        type = arrow::utf8();
        metadata = arrow::key_value_metadata({kJsonFieldKey}, {"1"});
      } else if (seen[Cell(std::string()).index()]) {
        type = arrow::utf8();
      } else if (seen[Cell(0.0).index()]) {
        type = arrow::float64();
      } else if (seen[Cell(int64_t{0}).index()]) {
        type = arrow::int64();
      } else if (seen[Cell(true).index()]) {
        type = arrow::boolean();
      }
      fields.push_back(arrow::field(names_[i], type, /*nullable=*/true, metadata));
    }
    return arrow::schema(std::move(fields));
  }

  std::shared_ptr<arrow::Array> to_array(const arrow::Field& field, const std::vector<Cell>& cells,
                                         const std::vector<int64_t>& lines) const {
    switch (field.type()->id()) {
      case arrow::Type::BOOL:
        return fill<arrow::BooleanBuilder, bool>(field, cells, lines);
      case arrow::Type::INT64:
        return fill<arrow::Int64Builder, int64_t>(field, cells, lines);
      case arrow::Type::DOUBLE:
        return fill<arrow::DoubleBuilder, double>(field, cells, lines);
      default:
        return fill<arrow::StringBuilder, std::string>(field, cells, lines);
    }
  }

  double as_decimal(int64_t whole, const arrow::Field& field, int64_t line) const {
    constexpr int64_t kExact = int64_t{1} << 53;
    if (whole > kExact || whole < -kExact) {
      refuse_value(line, fmt::format("key '{}' has {}, which a column of decimal numbers cannot hold exactly",
                                     printable(field.name()), whole));
    }
    return static_cast<double>(whole);
  }

  // A column's type is that of first chunks: a column of nulls has become one of strings, and decimals may come late.
  template <typename Value>
  static std::string_view advice(const Cell& cell) {
    if (std::is_same_v<Value, std::string>) return ", or null alone (then let a row with its value come first)";
    const bool is_decimal = std::is_same_v<Value, int64_t> && std::holds_alternative<double>(cell);
    return is_decimal ? "; written as 1.0, the first ones are decimal numbers as well" : "";
  }

  template <typename Builder, typename Value>
  std::shared_ptr<arrow::Array> fill(const arrow::Field& field, const std::vector<Cell>& cells,
                                     const std::vector<int64_t>& lines) const {
    const bool holds_json = is_json(field);
    Builder builder;
    for (size_t row = 0; row < cells.size(); ++row) {
      const Cell& cell = cells[row];
      if (cell.index() == 0) {
        require_ok(builder.AppendNull(), input_.name());
        continue;
      }
      if constexpr (std::is_same_v<Value, std::string>) {
        if (holds_json) {
          require_ok(builder.Append(as_json(cell)), input_.name());
          continue;
        }
      }
      if constexpr (std::is_same_v<Value, double>) {
        if (const auto* whole = std::get_if<int64_t>(&cell)) {
          require_ok(builder.Append(as_decimal(*whole, field, lines[row])), input_.name());
          continue;
        }
      }
      const auto* value = std::get_if<Value>(&cell);
      if (value == nullptr) {
        refuse_value(lines[row], fmt::format("key '{}' has {} where other rows have {}{}", printable(field.name()),
                                             type_name(cell), type_name(Cell(Value())), advice<Value>(cell)));
      }
      require_ok(builder.Append(*value), input_.name());
    }
    return value_of(builder.Finish(), input_.name());
  }

  LineInput input_;
  int64_t rows_per_chunk_;
  std::unordered_set<std::string> read_;  // empty: all
  std::unordered_map<std::string, size_t> column_of_;
  std::vector<std::string> names_;
  std::vector<std::string> keys_;  // of the first chunk, also those that are not read
  std::unordered_set<std::string> known_keys_;
  std::shared_ptr<arrow::Schema> schema_;
  Cells first_;
};

}  // namespace

std::unique_ptr<RowSource> open_json_lines(const RowSourceOptions& options) {
  return std::make_unique<JsonLinesSource>(options);
}

}  // namespace strake::data
