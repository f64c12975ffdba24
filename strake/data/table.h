#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strake::data {

class Table;

// One column of text: UTF-8 strings, or null. Keeps its memory alive by itself. Thread-safe: immutable.
class TextColumn {
 public:
  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  bool is_null(int64_t row) const { return nulls_[static_cast<size_t>(row)] != 0; }
  std::string_view operator[](int64_t row) const { return values_[static_cast<size_t>(row)]; }  // "" if null

 private:
  friend class Table;
  std::vector<std::string_view> values_;
  std::vector<char> nulls_;
  std::shared_ptr<const void> owner_;
};

enum class LabelKind { kText, kBool, kInteger, kNumber };

// A number as pandas reads it in CSV: white space around it and a plus sign are no matter. None if it is none.
std::optional<double> parse_number(std::string_view text);

// One column of labels: strings, booleans, integers of any width or floating point numbers, with nulls.
// Thread-safe: immutable.
class LabelColumn {
 public:
  LabelKind kind() const { return kind_; }
  int64_t size() const { return static_cast<int64_t>(nulls_.size()); }
  bool is_null(int64_t row) const { return nulls_[static_cast<size_t>(row)] != 0; }

  // Exact text form: the string itself, "true"/"false", decimal digits, or the shortest decimal that gives the number
  // back (1 for 1.0). "" if null.
  std::string text(int64_t row) const;
  // Error (kData) naming file, row and value where the value is null or not a finite number. Strings are parsed as a
  // whole; booleans are 0 and 1.
  double number(int64_t row) const;

 private:
  friend class Table;
  friend class LabelColumnBuilder;
  [[noreturn]] void refuse(int64_t row, std::string_view expected) const;

  LabelKind kind_ = LabelKind::kText;
  bool single_precision_ = false;  // numbers_ come from 32-bit floats
  std::string name_;
  std::vector<char> nulls_;
  std::vector<std::string_view> texts_;  // exactly one of these three is filled; booleans are integers_
  std::vector<int64_t> integers_;
  std::vector<double> numbers_;
  std::shared_ptr<const Table> table_;
  std::shared_ptr<const void> owner_;  // of texts_
};

// Some consecutive rows of one input file, all columns with their original types. A cheap handle; copies share the
// rows. Thread-safe: immutable. Rows count from 0, lines from 1.
class Table {
 public:
  struct Content;  // table_arrow.h
  explicit Table(std::shared_ptr<const Content> content) : content_(std::move(content)) {}

  int64_t num_rows() const;
  int64_t first_row() const;  // number of rows before this table in all files of the source
  std::vector<std::string> column_names() const;

  // The same rows with these columns alone, in this order. Errors as of text().
  Table select(const std::vector<std::string>& names) const;

  // Rows [begin, end).
  Table slice(int64_t begin, int64_t end) const;

  // Error (kData) if the column is missing (lists the columns), occurs twice, or has another type.
  TextColumn text(const std::string& name) const;
  LabelColumn labels(const std::string& name) const;

  // "reviews.csv, row 4, line 7", for messages: row of the file, and its line where the file has lines.
  std::string where(int64_t row) const;

  const Content& content() const { return *content_; }

 private:
  std::shared_ptr<const Content> content_;
};

}  // namespace strake::data
