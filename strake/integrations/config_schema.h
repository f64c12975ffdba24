#pragma once

#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strake/core/json.h"

// Checking a configuration file against a table of its keys: what DeepSpeed leaves to pydantic, or does not check at
// all.
namespace strake::integrations {

enum class ValueType {
  kSection,      // an object whose keys are in the table too
  kObject,       // any object, not looked into
  kSwitched,     // any object; counts as set only if it holds "enabled": true at some depth
  kBool,         // true or false
  kBoolText,     // true or false, also as text
  kBoolOrText,   // either, unchanged
  kInteger,      // 64 bits; 5e8 is one, 2.5 and "8" are not
  kIntegerText,  // an integer, also as text
  kNumber,
  kText,
  kIntegerList,
  kTextList,    // a single text stands for a list of one
  kNumberPair,  // [0.9, 0.999]
  kList         // any list, not looked into
};

enum class KeyStatus {
  kHonoured,  // decides what strake does
  kAccepted,  // strake always does it, or it means nothing here: `reason`
  kNoticed,   // as kAccepted, but worth telling the user when set: `reason` becomes a notice
  kRefused    // an error when set to anything but the default: `reason`
};

enum class AutoMeaning {
  kAsSection,  // whatever the section says; the top level says kError
  kError,      // "auto" is an error
  kDefault,    // as in DeepSpeed's pydantic models: as if the key were not there
  kFromFlags   // filled in later; the value "auto" is kept
};

struct KeyRule {
  std::string_view path;  // "zero_optimization.stage"
  ValueType type = ValueType::kText;
  std::string_view fallback = "null";  // default as JSON; keys whose default is null may be null
  KeyStatus status = KeyStatus::kHonoured;
  std::string_view reason;
  AutoMeaning auto_meaning = AutoMeaning::kAsSection;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string_view choices;   // "none|cpu|nvme": the texts allowed, in any case; "a=b|c": b is taken as a
  std::string_view harmless;  // of a refused key, another value that is fine, as JSON

  constexpr KeyRule range(double low, double high = std::numeric_limits<double>::infinity()) const {
    KeyRule rule = *this;
    rule.min = low;
    rule.max = high;
    return rule;
  }
  constexpr KeyRule one_of(std::string_view texts) const {
    KeyRule rule = *this;
    rule.choices = texts;
    return rule;
  }
  constexpr KeyRule allowing(std::string_view json) const {
    KeyRule rule = *this;
    rule.harmless = json;
    return rule;
  }
  constexpr KeyRule on_auto(AutoMeaning meaning) const {
    KeyRule rule = *this;
    rule.auto_meaning = meaning;
    return rule;
  }
  Json default_value() const { return Json::parse(fallback); }
};

constexpr KeyRule section(std::string_view path, AutoMeaning auto_meaning = AutoMeaning::kAsSection) {
  return {.path = path, .type = ValueType::kSection, .auto_meaning = auto_meaning};
}
constexpr KeyRule honoured(std::string_view path, ValueType type, std::string_view fallback) {
  return {.path = path, .type = type, .fallback = fallback};
}
constexpr KeyRule accepted(std::string_view path, ValueType type, std::string_view fallback, std::string_view reason) {
  return {.path = path, .type = type, .fallback = fallback, .status = KeyStatus::kAccepted, .reason = reason};
}
constexpr KeyRule noticed(std::string_view path, ValueType type, std::string_view fallback, std::string_view reason) {
  return {.path = path, .type = type, .fallback = fallback, .status = KeyStatus::kNoticed, .reason = reason};
}
constexpr KeyRule refused(std::string_view path, ValueType type, std::string_view fallback, std::string_view reason) {
  return {.path = path, .type = type, .fallback = fallback, .status = KeyStatus::kRefused, .reason = reason};
}

// Another name of a key. A non-empty note becomes a notice when the alias is used.
struct KeyAlias {
  std::string_view path;
  std::string_view canonical;
  std::string_view note;
};

// What to say about a key that does not exist but is often seen.
struct KeyHint {
  std::string_view path;
  std::string_view hint;
};

struct Schema {
  std::vector<KeyRule> rules;
  std::vector<KeyAlias> aliases;
  std::vector<KeyHint> hints;

  // The rule of a canonical path, or null.
  const KeyRule* find(std::string_view path) const;
};

// The keys of a configuration that are set, checked.
struct CheckedValues {
  std::string source;                  // for messages: a path or "--flag"
  std::map<std::string, Json> values;  // by canonical path, without sections; types as the table says, or "auto"
  std::set<std::string> autos;         // keys that are "auto" where that means their default: not in `values`
  std::vector<std::string> notices;    // for the user, each once

  bool has(const std::string& path) const { return values.contains(path); }
  bool is_auto(const std::string& path) const;
};

// Error (kConfig) that starts with `source` and lists every problem: unknown keys, with the nearest name or the place
// where the key belongs; values of another type or out of range; refused keys, with the reason. Keys that begin with
// '_', at any level, are comments: a notice names them.
CheckedValues check_values(const Json& root, const Schema& schema, const std::string& source);

// Throws Error (kConfig) listing `problems` unless there are none.
void require_no_problems(std::span<const std::string> problems, const std::string& source);

}  // namespace strake::integrations
