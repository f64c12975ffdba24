#include "strake/integrations/config_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "strake/core/nearest_name.h"
#include "strake/core/parse_integer.h"

namespace strake::integrations {
namespace {

using Checked = std::variant<Json, ValueProblem>;

std::string describe(const Json& value) {
  if (value.is_string()) return fmt::format("the text \"{}\"", printable(value.get<std::string>()));
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  return value.dump();
}

const char* expectation(ValueType type) {
  switch (type) {
    case ValueType::kSection:
    case ValueType::kObject:
    case ValueType::kSwitched:
      return "an object";
    case ValueType::kBool:
    case ValueType::kBoolText:
      return "true or false";
    case ValueType::kBoolOrText:
      return "true, false or a text";
    case ValueType::kInteger:
    case ValueType::kIntegerText:
      return "an integer";
    case ValueType::kNumber:
      return "a number";
    case ValueType::kText:
      return "a text";
    case ValueType::kIntegerList:
      return "a list of integers";
    case ValueType::kTextList:
      return "a list of texts";
    case ValueType::kNumberPair:
      return "a list of two numbers";
    case ValueType::kList:
      return "a list";
  }
  return "";
}

bool is_scalar(ValueType type) {
  return type == ValueType::kBool || type == ValueType::kInteger || type == ValueType::kNumber;
}

bool is_number_text(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && std::isfinite(value);
}

// What the user probably meant by a value of the wrong type; "" if nothing obvious.
std::string type_hint(const KeyRule& rule, const Json& value) {
  if (value.is_array() && is_scalar(rule.type)) return "; a list of values to tune needs a tuner: give the one to use";
  if (value.is_null()) return "; leave the key out for its default";
  if (rule.type == ValueType::kBool && (value == 0 || value == 1))
    return fmt::format("; write {}", value == 1 ? "true" : "false");
  if (!value.is_string()) return "";
  const auto text = value.get<std::string>();
  const bool is_bool = text == "true" || text == "True" || text == "false" || text == "False";
  if (rule.type == ValueType::kBool && is_bool)
    return fmt::format("; write {} without quotes", text.front() == 't' || text.front() == 'T' ? "true" : "false");
  const bool wants_number = rule.type == ValueType::kInteger || rule.type == ValueType::kNumber;
  if (wants_number && is_number_text(text)) return fmt::format("; write {} without quotes", text);
  return "";
}

ValueProblem wrong_type(const KeyRule& rule, const Json& value) {
  const char* what = value == "auto" ? ", and \"auto\" is not resolved for this key" : "";
  return {
      fmt::format("found {}, expected {}{}{}", describe(value), expectation(rule.type), what, type_hint(rule, value))};
}

std::optional<int64_t> whole_number(const Json& value) {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  const auto number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) >= kTwoTo63) return std::nullopt;
  return static_cast<int64_t>(number);
}

Checked in_range(const KeyRule& rule, const Json& written, Json value) {
  const auto number = value.get<double>();
  if (number >= rule.min && number <= rule.max) return value;
  if (std::isinf(rule.max)) return ValueProblem{fmt::format("{} is below {}", written.dump(), rule.min)};
  return ValueProblem{fmt::format("{} is not in [{}, {}]", written.dump(), rule.min, rule.max)};
}

Checked check_integer(const KeyRule& rule, const Json& value) {
  if (!value.is_number()) return wrong_type(rule, value);
  const std::optional<int64_t> number = whole_number(value);
  if (!number) return ValueProblem{fmt::format("{} is not a whole number of 64 bits", value.dump())};
  return in_range(rule, value, *number);
}

// What of a text is no integer stays a text.
Json integer_of(const Json& value) {
  if (!value.is_string()) return value;
  const auto number = parse_integer<int64_t>(value.get_ref<const std::string&>());
  return number ? Json(*number) : value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

Checked check_choice(const KeyRule& rule, const std::string& text) {
  if (rule.choices.empty()) return Json(text);
  std::vector<std::string> choices;
  for (const std::string_view choice : split(rule.choices, '|')) {
    const std::vector<std::string_view> names = split(choice, '=');
    choices.emplace_back(names.front());
    for (const std::string_view name : names) {
      if (lower_case(std::string(name)) == lower_case(text)) return Json(choices.back());
    }
  }
  return ValueProblem{
      fmt::format("\"{}\" is none of {}{}", printable(text), fmt::join(choices, ", "), did_you_mean(text, choices))};
}

Checked check_bool_text(const KeyRule& rule, const Json& value) {
  if (value.is_boolean()) return value;
  const std::string text = value.is_string() ? lower_case(value.get<std::string>()) : "";
  if (text == "true" || text == "1" || text == "yes") return Json(true);
  if (text == "false" || text == "0" || text == "no") return Json(false);
  return wrong_type(rule, value);
}

Checked check_list(const KeyRule& rule, const Json& value) {
  if (rule.type == ValueType::kTextList && value.is_string()) return Json::array({value});
  if (!value.is_array()) return wrong_type(rule, value);
  if (rule.type == ValueType::kNumberPair && value.size() != 2) return wrong_type(rule, value);
  for (const Json& item : value) {
    const bool fits = rule.type == ValueType::kList || (rule.type == ValueType::kTextList && item.is_string()) ||
                      (rule.type == ValueType::kNumberPair && item.is_number()) ||
                      (rule.type == ValueType::kIntegerList && item.is_number_integer());
    if (!fits)
      return ValueProblem{fmt::format("found {} in the list, expected {}", describe(item), expectation(rule.type))};
    if (rule.type != ValueType::kNumberPair) continue;
    const Checked checked = in_range(rule, item, item);
    if (std::holds_alternative<ValueProblem>(checked)) return checked;
  }
  return value;
}

// Iterative: the depth of a file is its author's choice (up to parse_json's limit).
template <typename Visit>
void for_each_object(const Json& root, const Visit& visit) {
  std::vector<const Json*> open{&root};
  while (!open.empty()) {
    const Json& value = *open.back();
    open.pop_back();
    if (value.is_object()) visit(value);
    if (value.is_structured())
      for (const Json& child : value) open.push_back(&child);
  }
}

bool enables_something(const Json& root) {
  bool enables = false;
  for_each_object(root, [&](const Json& object) { enables = enables || object.value("enabled", Json()) == true; });
  return enables;
}

// A section that is not looked into can still be off by mistake: by an "enabled" that is no boolean, or misspelt.
// "auto" is off, as for DeepSpeed, which nobody tells otherwise.
Checked check_switches(const KeyRule& rule, const Json& value) {
  if (!value.is_object()) return wrong_type(rule, value);
  static const std::vector<std::string> kSwitch{"enabled"};
  std::optional<ValueProblem> problem;
  for_each_object(value, [&](const Json& object) {
    for (const auto& [key, inner] : object.items()) {
      const bool is_switch = key == kSwitch.front();
      if (is_switch && !inner.is_boolean() && inner != "auto") {
        problem = {fmt::format("\"enabled\" in it: found {}, expected true or false{}", describe(inner),
                               type_hint({.type = ValueType::kBool}, inner))};
      } else if (!is_switch && !nearest_name(key, kSwitch).empty()) {
        problem = {fmt::format("\"{}\" in it: unknown{}", printable(key), did_you_mean(key, kSwitch))};
      }
    }
  });
  if (problem) return *problem;
  return value;
}

}  // namespace

Checked check_value(const KeyRule& rule, const Json& value) {
  if (value.is_null() && rule.default_value().is_null()) return value;
  switch (rule.type) {
    case ValueType::kSection:
    case ValueType::kObject:
      return value.is_object() ? Checked(value) : wrong_type(rule, value);
    case ValueType::kSwitched:
      return check_switches(rule, value);
    case ValueType::kBool:
      return value.is_boolean() ? Checked(value) : wrong_type(rule, value);
    case ValueType::kBoolText:
      return check_bool_text(rule, value);
    case ValueType::kBoolOrText:
      if (value.is_boolean()) return value;
      [[fallthrough]];
    case ValueType::kText:
      return value.is_string() ? check_choice(rule, value.get<std::string>()) : wrong_type(rule, value);
    case ValueType::kInteger:
      return check_integer(rule, value);
    case ValueType::kIntegerText:
      return check_integer(rule, integer_of(value));
    case ValueType::kNumber:
      return value.is_number() ? in_range(rule, value, value) : wrong_type(rule, value);
    case ValueType::kIntegerList:
    case ValueType::kTextList:
    case ValueType::kNumberPair:
    case ValueType::kList:
      return check_list(rule, value);
  }
  return wrong_type(rule, value);
}

bool is_set(const KeyRule& rule, const Json& value) {
  if (value.is_null()) return false;
  if (rule.type == ValueType::kSwitched) return enables_something(value);
  if (!rule.harmless.empty() && value == Json::parse(rule.harmless)) return false;
  return value != rule.default_value();
}

}  // namespace strake::integrations
