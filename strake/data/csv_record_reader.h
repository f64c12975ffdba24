#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strake/data/text_input.h"

namespace strake::data {

// Records of delimited text after RFC 4180: fields may be quoted with ", then contain delimiters, line ends and doubled
// quotes; records end with "\n" or "\r\n"; empty lines are skipped. A quote inside an unquoted field is plain text.
// Errors (kData) name file and line: text behind a closing quote, a quote that is not closed at the end of the file,
// a record beyond kMaxRecordBytes or kMostColumns.
class CsvRecordReader {
 public:
  struct Field {
    std::string_view text;
    bool quoted = false;
  };

  CsvRecordReader(TextInput input, char delimiter) : input_(std::move(input)), delimiter_(delimiter) {}

  // False at the end. The fields are valid until the next call.
  bool next();
  const std::vector<Field>& fields() const { return fields_; }
  int64_t line() const { return line_; }  // on which the record starts, from 1
  const std::string& name() const { return input_.name(); }

 private:
  // Positions in buffer_. A field is known once the character behind it is.
  struct Span {
    size_t begin = 0;
    size_t end = 0;
    bool quoted = false;
    bool has_doubled_quotes = false;
    size_t terminator = 0;  // delimiter, line end or end of the file
  };

  // nullopt: the rest of the record is not in the buffer yet.
  std::optional<size_t> scan_record();
  std::optional<Span> scan_quoted(size_t begin) const;
  std::optional<Span> scan_plain(size_t begin) const;
  // Length of the line end at `position`: 1, 2, or 0 if there is none.
  size_t line_end_at(size_t position) const;
  bool read_more();
  bool skip_empty_lines();
  void set_fields();

  TextInput input_;
  char delimiter_;
  bool at_end_ = false;
  std::string buffer_;
  size_t begin_ = 0;  // of the next record in buffer_
  int64_t line_ = 1;
  int64_t next_line_ = 1;
  std::vector<Span> spans_;
  std::vector<Field> fields_;
};

}  // namespace strake::data
