#include "strake/data/csv_record_reader.h"

#include <algorithm>

#include "strake/core/error.h"

namespace strake::data {

size_t CsvRecordReader::line_end_at(size_t position) const {
  if (buffer_[position] == '\n') return 1;
  const bool is_pair = buffer_[position] == '\r' && position + 1 < buffer_.size() && buffer_[position + 1] == '\n';
  return is_pair ? 2 : 0;
}

bool CsvRecordReader::read_more() {
  if (at_end_) return false;
  buffer_.erase(0, begin_);
  begin_ = 0;
  require(buffer_.size() <= kMaxRecordBytes, ErrorKind::kData,
          "{}, line {}: the record that starts here is longer than {} bytes; is a quote not closed?", name(),
          next_line_, kMaxRecordBytes);
  // Doubling keeps the rescans of a long record linear in its length.
  if (!input_.append_to(buffer_, std::max(TextInput::kBlockBytes, buffer_.size()))) at_end_ = true;
  return true;
}

bool CsvRecordReader::skip_empty_lines() {
  while (true) {
    if (begin_ + 1 >= buffer_.size() && read_more()) continue;  // "\r\n" needs two bytes
    if (begin_ >= buffer_.size()) return false;
    const size_t line_end = line_end_at(begin_);
    if (line_end == 0) return true;
    begin_ += line_end;
    ++next_line_;
  }
}

std::optional<CsvRecordReader::Span> CsvRecordReader::scan_plain(size_t begin) const {
  size_t end = begin;
  while (end < buffer_.size() && buffer_[end] != delimiter_ && buffer_[end] != '\n') ++end;
  if (end == buffer_.size() && !at_end_) return std::nullopt;
  Span field{.begin = begin, .end = end, .terminator = end};
  const bool ends_record = end == buffer_.size() || buffer_[end] == '\n';
  if (ends_record && end > begin && buffer_[end - 1] == '\r') --field.end;
  const std::string_view text = std::string_view(buffer_).substr(begin, field.end - begin);
  require(text.find('\r') == std::string_view::npos, ErrorKind::kData,
          "{}, line {}: field {} holds a carriage return outside quotes; lines must end with a line feed, or with both",
          name(), next_line_, spans_.size() + 1);
  return field;
}

std::optional<CsvRecordReader::Span> CsvRecordReader::scan_quoted(size_t begin) const {
  Span field{.begin = begin + 1, .quoted = true};
  size_t quote = buffer_.find('"', begin + 1);
  while (quote != std::string::npos && quote + 1 < buffer_.size() && buffer_[quote + 1] == '"') {
    field.has_doubled_quotes = true;
    quote = buffer_.find('"', quote + 2);
  }
  if (quote == std::string::npos || quote + 2 >= buffer_.size()) {
    if (!at_end_) return std::nullopt;
    require(quote != std::string::npos, ErrorKind::kData,
            "{}, line {}: a quoted field of the record that starts here is not closed at the end of the file; is the "
            "file cut short?",
            name(), next_line_);
  }
  field.end = quote;
  field.terminator = quote + 1;
  const bool closed = field.terminator == buffer_.size() || buffer_[field.terminator] == delimiter_ ||
                      line_end_at(field.terminator) > 0;
  require(closed, ErrorKind::kData,
          "{}, line {}: '{}' follows the closing quote of field {}; quotes inside a quoted "
          "field must be doubled",
          name(),
          next_line_ + std::count(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
                                  buffer_.begin() + static_cast<std::ptrdiff_t>(field.terminator), '\n'),
          printable(std::string_view(buffer_).substr(field.terminator, 1)), spans_.size() + 1);
  return field;
}

std::optional<size_t> CsvRecordReader::scan_record() {
  spans_.clear();
  for (size_t position = begin_;;) {
    const bool quoted = position < buffer_.size() && buffer_[position] == '"';
    const std::optional<Span> field = quoted ? scan_quoted(position) : scan_plain(position);
    if (!field) return std::nullopt;
    if (spans_.size() == kMostColumns) {
      fail(ErrorKind::kData, "{}, line {}: the record that starts here has more than {} fields", name(), next_line_,
           kMostColumns);
    }
    spans_.push_back(*field);
    if (field->terminator == buffer_.size()) return field->terminator;
    if (buffer_[field->terminator] != delimiter_) return field->terminator + line_end_at(field->terminator);
    position = field->terminator + 1;
  }
}

void CsvRecordReader::set_fields() {
  fields_.clear();
  for (const Span& span : spans_) {
    char* const text = buffer_.data() + span.begin;
    size_t length = span.end - span.begin;
    if (span.has_doubled_quotes) {  // in place: the text only gets shorter
      size_t kept = 0;
      for (size_t i = 0; i < length; ++i) {
        text[kept++] = text[i];
        if (text[i] == '"') ++i;
      }
      length = kept;
    }
    fields_.push_back({.text = {text, length}, .quoted = span.quoted});
  }
}

bool CsvRecordReader::next() {
  if (!skip_empty_lines()) return false;
  std::optional<size_t> end = scan_record();
  while (!end) {
    read_more();
    end = scan_record();
  }
  line_ = next_line_;
  next_line_ += std::count(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
                           buffer_.begin() + static_cast<std::ptrdiff_t>(*end), '\n');
  begin_ = *end;
  set_fields();
  return true;
}

}  // namespace strake::data
