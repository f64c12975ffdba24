#include "strake/cli/flag_file.h"

#include <toml++/toml.h>
#include <algorithm>

#include "strake/core/error.h"

namespace strake::cli {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  FlagSetting read(const std::string& key, const toml::node& node) const {
    FlagSetting setting{.key = key, .values = {}, .line = line_of(node)};
    const toml::array* const list = node.as_array();
    if (list == nullptr) {
      setting.values.push_back(read_scalar(key, node));
    } else {
      for (const toml::node& value : *list) setting.values.push_back(read_scalar(key, value));
      if (list->empty()) refuse(node, fmt::format("the list of '{}' is empty; leave its key out", printable(key)));
    }
    return setting;
  }

 private:
  static size_t line_of(const toml::node& node) { return node.source().begin.line; }

  [[noreturn]] void refuse(const toml::node& node, const std::string& what) const {
    fail(ErrorKind::kUsage, "{}:{}: {}", file_, line_of(node), what);
  }

  [[noreturn]] void refuse_table(const std::string& key, const toml::table& table) const {
    const std::string name = printable(key);
    if (table.is_inline()) {
      refuse(table, fmt::format("'{0}' is a table; write it as JSON in quotes: {0} = '{{\"name\": value}}'", name));
    }
    refuse(table, fmt::format("section [{}] is not expected; write all keys without sections, and tables as JSON in "
                              "quotes",
                              name));
  }

  std::string read_scalar(const std::string& key, const toml::node& node) const {
    if (const auto* const text = node.as_string()) {
      if (text->get().find('\0') != std::string::npos) {
        refuse(node, fmt::format("'{}' holds a character of code 0, which no flag can", printable(key)));
      }
      return text->get();
    }
    if (const auto* const number = node.as_integer()) return std::to_string(number->get());
    if (const auto* const number = node.as_floating_point()) return fmt::format("{}", number->get());
    if (const auto* const yes = node.as_boolean()) return yes->get() ? "true" : "false";
    if (node.is_table()) refuse_table(key, *node.as_table());
    refuse(node, fmt::format("'{}' holds {}; expected a string, a number, true, false or a list of those",
                             printable(key), node.is_array() ? "a list in a list" : "a date or a time"));
  }

  const std::string& file_;
};

toml::table parse(std::string_view text, const std::string& file) {
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    fail(ErrorKind::kUsage,
         "{}:{}: {}; lines of TOML are key = value, with strings in quotes (in \"\" double each \\, or quote by '') "
         "and lists in [ ]",
         file, error.source().begin.line, printable(error.description(), 200));
  }
}

}  // namespace

std::vector<FlagSetting> read_flag_file(std::string_view text, const std::string& file) {
  const toml::table table = parse(text, file);
  std::vector<FlagSetting> settings;
  const Reader reader(file);
  for (const auto& [key, node] : table) settings.push_back(reader.read(std::string(key.str()), node));
  std::ranges::sort(settings, {}, &FlagSetting::line);
  return settings;
}

}  // namespace strake::cli
