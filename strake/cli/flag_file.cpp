#include "strake/cli/flag_file.h"

#include <algorithm>

#include "strake/core/error.h"
#include "strake/core/json.h"

namespace strake::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  std::vector<FlagSetting> read() {
    std::vector<FlagSetting> settings;
    for (skip_empty_lines(); at_ < text_.size(); skip_empty_lines()) settings.push_back(read_setting());
    return settings;
  }

 private:
  size_t line() const { return 1 + static_cast<size_t>(std::ranges::count(text_.substr(0, at_), '\n')); }

  [[noreturn]] void refuse(const std::string& what) const { fail(ErrorKind::kUsage, "{}:{}: {}", file_, line(), what); }

  char next() const { return at_ < text_.size() ? text_[at_] : '\n'; }

  // All up to one of `ends`, a comment or the end of the line.
  std::string_view take_until(std::string_view ends) {
    const size_t first = at_;
    while (next() != '\n' && next() != '#' && ends.find(next()) == std::string_view::npos) ++at_;
    return trimmed(text_.substr(first, at_ - first));
  }

  void skip_blanks() {
    while (kBlanks.find(next()) != std::string_view::npos) ++at_;
  }

  void skip_empty_lines() {
    while (at_ < text_.size()) {
      skip_blanks();
      if (next() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      if (next() != '\n') return;
      at_ = std::min(at_ + 1, text_.size());
    }
  }

  FlagSetting read_setting() {
    if (next() == '[') refuse_section();
    FlagSetting setting{.key = {}, .values = {}, .line = line()};
    if (next() == '"' || next() == '\'') {
      setting.key = read_string();
      skip_blanks();
    } else {
      setting.key = take_until("=");
    }
    if (next() != '=') refuse(fmt::format("'{}' is no line of the form key = value", printable(setting.key)));
    ++at_;
    skip_blanks();
    if (next() == '{') refuse_table(setting.key);
    setting.values = next() == '[' ? read_list() : std::vector{read_value("")};
    const std::string_view rest = take_until("");
    if (!rest.empty()) refuse(fmt::format("'{}' behind the value of '{}'", printable(rest), printable(setting.key)));
    return setting;
  }

  [[noreturn]] void refuse_section() {
    refuse(fmt::format("section {} is not expected; write all keys without sections, and tables as JSON in quotes",
                       printable(take_until(""))));
  }

  [[noreturn]] void refuse_table(const std::string& key) const {
    refuse(fmt::format("'{0}' is a table; write it as JSON in quotes: {0} = '{{\"name\": value}}'", printable(key)));
  }

  // At '['.
  std::vector<std::string> read_list() {
    std::vector<std::string> values;
    ++at_;
    for (skip_empty_lines(); next() != ']'; skip_empty_lines()) {
      if (next() == '[' || next() == '{') refuse("a list in a list, or a table in one, is not expected");
      values.push_back(read_value(",]"));
      skip_empty_lines();
      if (next() == ',') {
        ++at_;
      } else if (next() != ']') {
        refuse(at_ == text_.size() ? "a list has no ']' at its end" : "expected ',' or ']' behind a value of a list");
      }
    }
    ++at_;
    if (values.empty()) refuse("a list is empty; leave its key out");
    return values;
  }

  // Words without quotes are no TOML, but what else could they mean?
  std::string read_value(std::string_view ends) {
    if (next() == '"' || next() == '\'') return read_string();
    const std::string_view word = take_until(ends);
    if (word.empty()) refuse("a value is missing");
    if (word.find_first_of(" \t,\"'") != std::string_view::npos) {
      refuse(fmt::format("'{}' is not one value; strings need quotes, and lists [ ]", printable(word)));
    }
    return std::string(word);
  }

  // At its first quote. Escapes of "strings" are those of JSON; 'strings' have none.
  std::string read_string() {
    const char quote = next();
    const size_t first = at_++;
    while (next() != quote) {
      if (next() == '\n') refuse(fmt::format("a string has no {} at its end", quote));
      at_ += quote == '"' && next() == '\\' && at_ + 1 < text_.size() ? 2 : 1;
    }
    const std::string_view quoted = text_.substr(first, ++at_ - first);
    if (quote == '\'') return std::string(quoted.substr(1, quoted.size() - 2));
    try {
      return parse_json(quoted, file_).get<std::string>();
    } catch (const Error&) {
      refuse(fmt::format("{} is no string: a \\ begins an escape; double it, or quote by ' '", printable(quoted)));
    }
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
};

}  // namespace

std::vector<FlagSetting> read_flag_file(std::string_view text, const std::string& file) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return Reader(text, file).read();
}

}  // namespace strake::cli
