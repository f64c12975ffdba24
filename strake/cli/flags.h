#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/core/parse_integer.h"

// Flags, --config files, --help and --print_config from the one list of fields that every configuration has
// (visit_fields). Flags follow Hugging Face's HfArgumentParser: --name value, and for booleans --name, --name true,
// --name False.
namespace strake::cli {

// What a verb looks like from outside.
struct VerbText {
  std::string name;
  std::string summary;
  std::string examples;
};

// Parses `arguments` (without program and verb) into the options of `app`. Unknown flags are errors (kUsage) that name
// the nearest one, or say why a flag of Hugging Face or DeepSpeed is not there. Returns false if --help was asked for,
// which is then printed.
bool parse_arguments(CLI::App& app, std::vector<std::string> arguments, std::ostream& out);

// true/false in the spellings of HfArgumentParser; Error (kUsage) naming the flag.
bool parse_bool(const std::string& text, const std::string& flag);

// "" if T holds the integer that `text` writes, else what is wrong: CLI11 would wrap or cut it silently.
template <typename T>
std::string check_integer(const std::string& text) {
  if (parse_integer<T>(text)) return "";
  return fmt::format("'{}' is not a whole number in [{}, {}]", printable(text), std::numeric_limits<T>::min(),
                     std::numeric_limits<T>::max());
}

// "" if `text` writes a number (nan and inf are some), else what is wrong.
std::string check_number(const std::string& text);

// "--name", with a comma and what newer versions of Transformers call that switch behind it.
std::string switch_names(const std::string& name);

constexpr const char* kSwitchType = "[true|false]";  // of a flag that needs no value

template <typename T>
void add_flag(CLI::App& app, const char* name, T& field, const char* help) {
  const std::string flag = std::string("--") + name;
  if constexpr (std::is_same_v<T, bool>) {
    app.add_option_function<std::vector<std::string>>(
           switch_names(name),
           [&field, flag](const std::vector<std::string>& values) {
             field = values.empty() || values.back().empty() || parse_bool(values.back(), flag);
           },
           help)
        ->expected(0, 1)
        ->type_name(kSwitchType);  // no default_str: CLI11 would take it for the value of a flag without one
  } else if constexpr (std::is_same_v<T, std::optional<bool>>) {
    app.add_option_function<std::string>(
           flag, [&field, flag](const std::string& value) { field = parse_bool(value, flag); }, help)
        ->type_name("BOOL");
  } else if constexpr (std::is_same_v<T, std::optional<uint64_t>> || std::is_same_v<T, std::optional<int64_t>>) {
    using Integer = typename T::value_type;
    app.add_option_function<Integer>(
           flag, [&field](const Integer& value) { field = value; }, help)
        ->check(&check_integer<Integer>);
  } else if constexpr (std::is_same_v<T, std::optional<double>>) {
    app.add_option_function<double>(flag, [&field](const double& value) { field = value; }, help)->check(&check_number);
  } else if constexpr (std::is_integral_v<T>) {
    app.add_option(flag, field, help)->capture_default_str()->check(&check_integer<T>);
  } else if constexpr (std::is_floating_point_v<T>) {
    app.add_option(flag, field, help)->capture_default_str()->check(&check_number);
  } else {
    app.add_option(flag, field, help)->capture_default_str();
  }
}

template <typename T>
Json to_json(const T& field) {
  return field;
}
template <typename T>
Json to_json(const std::optional<T>& field) {
  return field ? Json(*field) : Json();
}

// Fills `config` from the command line, with the names of what was on it or in --config if it has a place for them
// (`given`). False: help or the configuration was printed, nothing is to be run.
template <typename Config>
bool parse_config(const VerbText& text, std::vector<std::string> arguments, Config& config, std::ostream& out) {
  CLI::App app(text.summary, "strake " + text.name);
  app.footer(text.examples);
  app.set_config("--config", "", "TOML file with the same names");
  bool print_config = false;
  Config::visit_fields(config,
                       [&](const char* name, auto& field, const char* help) { add_flag(app, name, field, help); });
  constexpr bool kHasPlan = requires { config.dry_run; };
  add_flag(app, "print_config", print_config,
           kHasPlan ? "print what flags and --config say as JSON and stop; --dry_run shows what --deepspeed makes of it"
                    : "print what flags and --config say as JSON and stop");
  if (!parse_arguments(app, std::move(arguments), out)) return false;
  if constexpr (requires { config.given; }) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->count() > 0) config.given.insert(option->get_single_name());
    }
  }
  if (!print_config) return true;
  config.validate();
  nlohmann::ordered_json json;
  Config::visit_fields(config, [&](const char* name, const auto& field, const char*) { json[name] = to_json(field); });
  out << json_text(json, 2) << "\n";
  return false;
}

}  // namespace strake::cli
