#include "strake/integrations/hjson.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/utf8.h"

namespace strake::integrations {
namespace {

constexpr std::string_view kSpace = " \t\n\r";
constexpr std::string_view kPunctuators = "{}[],:";
constexpr std::string_view kEndsOfLine = "\r\n";

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view without_space(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

size_t skip_digits(std::string_view text, size_t i) {
  while (i < text.size() && is_digit(text[i])) ++i;
  return i;
}

// As JSON has them: -1, 0.5, 2e-5.
bool is_number(std::string_view text) {
  size_t i = text.starts_with('-') ? 1 : 0;
  const size_t whole = i;
  i = skip_digits(text, i);
  if (i == whole || (text[whole] == '0' && i > whole + 1)) return false;
  if (i < text.size() && text[i] == '.') {
    const size_t fraction = ++i;
    i = skip_digits(text, i);
    if (i == fraction) return false;
  }
  if (i < text.size() && is_one_of(text[i], "eE")) {
    ++i;
    if (i < text.size() && is_one_of(text[i], "+-")) ++i;
    const size_t exponent = i;
    i = skip_digits(text, i);
    if (i == exponent) return false;
  }
  return i == text.size();
}

bool is_finite(std::string_view number) {
  double value = 0;
  const bool is_known = std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc{};
  const bool is_tiny = number.find("e-") != std::string_view::npos || number.find("E-") != std::string_view::npos;
  return is_known ? std::isfinite(value) : is_tiny;
}

bool is_word(std::string_view text) { return text == "true" || text == "false" || text == "null"; }

void append_quoted(std::string& json, std::string_view text) {
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\')
      json += {'\\', c};
    else if (static_cast<unsigned char>(c) < ' ')
      json += fmt::format("\\u{:04x}", c);
    else
      json += c;
  }
  json += '"';
}

class Rewriter {
 public:
  Rewriter(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  std::string json() {
    const size_t valid = check_utf8(text_).valid;
    require_here(valid == text_.size(), valid, "found a byte that is not UTF-8");
    const size_t zero = std::min(text_.find('\0'), text_.size());
    require_here(zero == text_.size(), zero, "found a character of code 0");
    skip_blank();
    if (is_one_of(next(), "{["))
      open(next(), position_);
    else
      open('{', kNoBrace);
    while (!open_.empty()) item_or_end();
    require_here(is_end(), position_, "found '{}' behind the end of everything", found());
    return std::move(json_);
  }

 private:
  struct Container {
    char bracket = '{';
    size_t position = 0;
    bool is_empty = true;
  };
  static constexpr size_t kNoBrace = std::string_view::npos;

  template <typename... Arguments>
  void require_here(bool condition, size_t position, fmt::format_string<Arguments...> format,
                    Arguments&&... arguments) const {
    if (condition) return;
    const std::string_view before = text_.substr(0, position);
    fail(ErrorKind::kConfig, "{}: line {}, column {}: {}", source_, std::ranges::count(before, '\n') + 1,
         characters_before(position) + 1, fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  // On its line.
  size_t characters_before(size_t position) const {
    const std::string_view before = text_.substr(0, position);
    return count_characters(before.substr(before.rfind('\n') + 1));  // 0 where there is none
  }

  bool is_end() const { return position_ == text_.size(); }
  char next() const { return is_end() ? '\0' : text_[position_]; }
  std::string found() const { return printable(std::string(1, next())); }
  bool starts(std::string_view what) const { return text_.substr(position_).starts_with(what); }
  void skip_blank() {
    position_ = skip_hjson_blank(text_, position_);
    require_here(!starts("/*"), position_, "the comment has no end");
  }

  void open(char bracket, size_t position) {
    json_ += bracket;
    if (position != kNoBrace) ++position_;
    open_.push_back({.bracket = bracket, .position = position});
  }

  void item_or_end() {
    skip_blank();
    Container& container = open_.back();
    const bool is_object = container.bracket == '{';
    const bool has_brace = container.position != kNoBrace;
    const char closing = is_object ? '}' : ']';
    if (has_brace ? next() == closing : is_end() && !container.is_empty) {
      json_ += closing;
      if (has_brace) ++position_;
      open_.pop_back();
      end_value();
      return;
    }
    require_here(!is_end() || !has_brace || swallowing_ == kNoBrace, swallowing_,
                 "what begins here is neither a number nor true, false or null, so it is a text without quotes, which "
                 "takes all that follows it on its line; '{}' has no '{}' then",
                 container.bracket, closing);
    require_here(!is_end() || !has_brace, container.position, "'{}' has no '{}'", container.bracket, closing);
    if (!container.is_empty) json_ += ',';
    container.is_empty = false;
    if (is_object) {
      key();
      skip_blank();
      require_here(next() == ':', position_, "found '{}', expected the ':' behind a key", found());
      ++position_;
      json_ += ':';
      skip_blank();
    }
    if (is_one_of(next(), "{[")) {
      open(next(), position_);
      return;
    }
    scalar();
    end_value();
  }

  void end_value() {
    skip_blank();
    if (next() == ',' && !open_.empty()) ++position_;
  }

  void key() {
    if (next() == '"' || next() == '\'') return quoted();
    const size_t begin = position_;
    while (!is_end() && !is_one_of(next(), kSpace) && !is_one_of(next(), kPunctuators)) ++position_;
    require_here(!is_end(), begin, "expected a key and ':', found the end");
    require_here(position_ > begin, position_, "found '{}', expected a key", found());
    append_quoted(json_, text_.substr(begin, position_ - begin));
  }

  void scalar() {
    if (starts("'''"))
      lines();
    else if (next() == '"' || next() == '\'')
      quoted();
    else
      unquoted();
  }

  // Escapes are JSON's, but for \' .
  void quoted() {
    const size_t begin = position_;
    const char quote = next();
    json_ += '"';
    for (++position_; next() != quote || is_end(); ++position_) {
      require_here(!is_end(), begin, "the string has no end");
      require_here(static_cast<unsigned char>(next()) >= ' ', position_, "found a control character in a string");
      if (starts("\\'")) ++position_;
      if (next() == '\\' && position_ + 1 < text_.size()) {
        require_escape();
        json_ += text_[position_++];
      } else if (next() == '"') {
        json_ += '\\';
      }
      json_ += next();
    }
    ++position_;
    json_ += '"';
  }

  void require_escape() const {
    constexpr size_t kDigits = 4;
    const std::string_view escape = text_.substr(position_ + 1, kDigits + 1);
    const bool is_code = escape.starts_with('u') && escape.size() == kDigits + 1 &&
                         escape.find_first_not_of("0123456789abcdefABCDEF", 1) == std::string_view::npos;
    require_here(is_code || is_one_of(escape.front(), "\"\\/bfnrt"), position_, "'\\' begins none of JSON's escapes");
    require_here(!is_code || escape != "u0000", position_, "found a character of code 0");
  }

  // A number or word up to ',', a bracket or a comment, or else a string up to the end of the line.
  void unquoted() {
    require_here(!is_end(), position_, "expected a value, found the end");
    require_here(!is_one_of(next(), kPunctuators), position_, "found '{}', expected a value", found());
    const bool is_python_number = starts("Infinity") || starts("-Infinity") || starts("NaN");
    require_here(!is_python_number, position_,
                 "found what Python writes for a number that is not finite; leave the key out for its default");
    const size_t begin = position_;
    if (line_end_ <= begin) line_end_ = std::min(text_.find_first_of(kEndsOfLine, begin), text_.size());
    const size_t line_end = line_end_;
    for (; position_ <= line_end; ++position_) {
      const bool is_comment = starts("#") || starts("//") || starts("/*");
      if (position_ < line_end && !is_comment && !is_one_of(next(), ",}]")) continue;
      const std::string_view value = without_space(text_.substr(begin, position_ - begin));
      if (is_number(value) || is_word(value)) {
        require_here(is_word(value) || is_finite(value), begin, "number {} is out of range", printable(value));
        json_ += value;
        return;
      }
    }
    position_ = line_end;
    const std::string_view value = text_.substr(begin, line_end - begin);
    if (value.find_first_of("]}") != std::string_view::npos) swallowing_ = begin;
    append_quoted(json_, without_space(value));
  }

  // A string of several lines, each without the indentation of the first quotes.
  void lines() {
    const size_t begin = position_;
    const size_t indent = characters_before(begin);
    const auto skip_indent = [&](size_t most) {
      for (; most > 0 && !is_end() && is_one_of(next(), " \t\r"); --most) ++position_;
    };
    std::string content;
    position_ += 3;
    skip_indent(text_.size());
    if (next() == '\n') {
      ++position_;
      skip_indent(indent);
    }
    while (!starts("'''")) {
      require_here(!is_end(), begin, "the string of several lines has no '''");
      const char c = text_[position_++];
      if (c != '\r') content += c;
      if (c == '\n') skip_indent(indent);
    }
    position_ += 3;
    if (content.ends_with('\n')) content.pop_back();
    append_quoted(json_, content);
  }

  std::string_view text_;
  const std::string& source_;
  size_t position_ = 0;
  size_t line_end_ = 0;           // of the last value without quotes: a line of many values is searched once
  size_t swallowing_ = kNoBrace;  // where the last text without quotes that has a closing bracket in it begins
  std::string json_;
  std::vector<Container> open_;
};

}  // namespace

size_t skip_hjson_blank(std::string_view text, size_t position) {
  while (true) {
    position = std::min(text.find_first_not_of(kSpace, position), text.size());
    const std::string_view rest = text.substr(position);
    if (rest.starts_with('#') || rest.starts_with("//")) {
      position = std::min(text.find_first_of(kEndsOfLine, position), text.size());
    } else if (rest.starts_with("/*")) {
      const size_t end = rest.find("*/", 2);
      if (end == std::string_view::npos) return position;
      position += end + 2;
    } else {
      return position;
    }
  }
}

std::string hjson_to_json(std::string_view text, const std::string& source) { return Rewriter(text, source).json(); }

}  // namespace strake::integrations
