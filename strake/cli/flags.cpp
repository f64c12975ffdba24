#include "strake/cli/flags.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <istream>
#include <iterator>
#include <map>
#include <ostream>
#include <utility>

#include "strake/cli/flag_file.h"
#include "strake/cli/flags_of_others.h"
#include "strake/core/error.h"
#include "strake/core/nearest_name.h"

namespace strake::cli {
namespace {

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

bool is_switch(const CLI::Option* option) { return option != nullptr && option->get_type_name() == kSwitchType; }

bool is_configuration(const std::string& path) {
  constexpr std::string_view kEndings[] = {".json", ".yaml", ".yml", ".toml"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return path.ends_with(ending); });
}

[[noreturn]] void refuse_unknown(const CLI::App& app, const std::string& argument) {
  const std::string flag = argument.substr(0, argument.find('='));
  if (const auto hint = hint_for(flag)) fail(ErrorKind::kUsage, "{}: {}", flag, *hint);
  if (!flag.starts_with("-")) {
    fail(ErrorKind::kUsage, "'{}' is not expected here; flags begin with --{}", printable(flag),
         is_configuration(flag) ? ", or are lines of a TOML file, key = value: --config run.toml" : "");
  }
  fail(ErrorKind::kUsage, "unknown flag {}{}", printable(flag), did_you_mean(flag, flag_names(app)));
}

// What HfArgumentParser takes, JSON and YAML, would get answers about lines of TOML.
void require_toml(const std::string& text, const std::string& file) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && text[first] == '{';
  require(!is_json && (!is_configuration(file) || file.ends_with(".toml")), ErrorKind::kUsage,
          "--config {}: a TOML file is expected, with lines of the form key = value, and this is {}", printable(file),
          is_json || file.ends_with(".json") ? "JSON" : "YAML");
}

// Of a device or a pipe as well, which may have no end.
std::string text_of(std::istream& input, const std::string& file) {
  std::string text(kMaxConfigBytes + 1, '\0');
  input.read(text.data(), static_cast<std::streamsize>(text.size()));
  require(!input.bad(), ErrorKind::kIo, "--config {}: cannot be read", printable(file));
  text.resize(static_cast<size_t>(input.gcount()));
  require(text.size() <= kMaxConfigBytes, ErrorKind::kUsage, "--config {}: more than {} bytes", printable(file),
          kMaxConfigBytes);
  return text;
}

// "~" and what is below it, as Transformers does of output_dir: shells leave it alone behind --flag=, in quotes and in
// files, and a folder of that name is a trap for whoever removes it.
std::string at_home(const std::string& value) {
  if (value != "~" && !value.starts_with("~/")) return value;
  const char* const home = std::getenv("HOME");
  require(home != nullptr && *home != '\0', ErrorKind::kUsage,
          "{}: the variable HOME, which says where ~ is, is not set", printable(value));
  return home + value.substr(1);
}

// --config files hold flags by name and nothing else.
class FlagFile final : public CLI::ConfigTOML {
 public:
  explicit FlagFile(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const auto file = app_.get_config_ptr()->as<std::string>();
    const std::string text = text_of(input, file);
    require_toml(text, file);
    std::map<const CLI::Option*, std::string> keys;
    std::vector<CLI::ConfigItem> items;
    for (const FlagSetting& setting : read_flag_file(text, file)) {
      const CLI::Option& option = option_of(setting, file);
      const auto [other, is_new] = keys.emplace(&option, setting.key);
      require(is_new, ErrorKind::kUsage, "{}:{}: key '{}' is there already, by its other name '{}'", file, setting.line,
              setting.key, other->second);
      require(setting.values.size() == 1 || option.get_items_expected_max() > 1, ErrorKind::kUsage,
              "{}:{}: --{} takes one value, and here are {}", file, setting.line, setting.key, setting.values.size());
      const bool is_empty = is_switch(&option) && setting.values.front().empty();
      require(!is_empty, ErrorKind::kUsage, "{}:{}: {} has an empty value; expected true or false", file, setting.line,
              setting.key);
      std::vector<std::string> values = setting.values;
      std::ranges::transform(values, values.begin(), at_home);
      items.push_back({.parents = {}, .name = setting.key, .inputs = std::move(values)});
    }
    return items;
  }

 private:
  const CLI::Option& option_of(const FlagSetting& setting, const std::string& file) const {
    const CLI::Option* const option = app_.get_option_no_throw("--" + setting.key);
    if (option != nullptr) return *option;
    if (const auto hint = hint_for("--" + setting.key)) {
      fail(ErrorKind::kUsage, "{}:{}: {}: {}", file, setting.line, setting.key, *hint);
    }
    std::vector<std::string> keys = flag_names(app_);
    for (std::string& key : keys) key.erase(0, 2);
    fail(ErrorKind::kUsage, "{}:{}: unknown key '{}'{}", file, setting.line, printable(setting.key),
         did_you_mean(setting.key, keys));
  }

  const CLI::App& app_;
};

void expand_home(std::vector<std::string>& arguments) {
  for (std::string& argument : arguments) {
    const size_t value = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    argument = value == std::string::npos ? at_home(argument)
                                          : argument.substr(0, value + 1) + at_home(argument.substr(value + 1));
  }
}

// To CLI11 `--flag=` and `--flag ""` are `--flag`, which of a switch means true; they are what a script writes whose
// variable is not set.
void refuse_empty_switches(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--")) continue;
    const size_t equals = argument.find('=');
    const bool is_alone = equals == std::string::npos;
    const bool is_empty =
        is_alone ? i + 1 < arguments.size() && arguments[i + 1].empty() : equals + 1 == argument.size();
    const std::string flag = argument.substr(0, equals);
    if (!is_empty || !is_switch(app.get_option_no_throw(flag))) continue;
    fail(ErrorKind::kUsage, "{}{} has an empty value; expected true or false", flag, is_alone ? " ''" : "=");
  }
}

// Newer versions of Transformers recommend --fsdp alone, older ones had words behind it.
void complete_bare_fsdp(std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_alone = i + 1 == arguments.size() || arguments[i + 1].starts_with("--");
    if (arguments[i] == "--fsdp" && is_alone) arguments[i] += "=true";
  }
}

}  // namespace

bool parse_arguments(CLI::App& app, std::vector<std::string> arguments, std::ostream& out) {
  app.allow_extras();
  app.config_formatter(std::make_shared<FlagFile>(app));
  refuse_empty_switches(app, arguments);
  expand_home(arguments);
  complete_bare_fsdp(arguments);
  // Of a flag that is there twice the last one holds, as for argparse: CLI11 then forgets the values it had.
  for (CLI::Option* option : app.get_options()) option->trigger_on_parse();
  std::ranges::reverse(arguments);  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    out << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    fail(ErrorKind::kUsage, "{}", error.what());
  }
  for (const std::string& extra : app.remaining()) refuse_unknown(app, extra);
  return true;
}

std::string switch_names(const std::string& name) {
  const std::string alias = name == "gradient_checkpointing" ? ",--activation_checkpointing" : "";
  return "--" + name + alias;
}

std::string check_number(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  if (!text.empty() && end == text.c_str() + text.size()) return "";
  return fmt::format("'{}' is not a number", printable(text));
}

bool parse_bool(const std::string& text, const std::string& flag) {
  const std::string lower = lower_case(text);
  if (lower == "true" || lower == "1" || lower == "yes" || lower == "y" || lower == "t") return true;
  if (lower == "false" || lower == "0" || lower == "no" || lower == "n" || lower == "f") return false;
  fail(ErrorKind::kUsage, "{} {}: neither true nor false", flag, printable(text));
}

}  // namespace strake::cli
